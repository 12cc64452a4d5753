"""The disk-resident relation: pages, index, snapshots, updates, device."""
