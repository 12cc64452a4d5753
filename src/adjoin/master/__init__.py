"""The disk-resident relation: pages, index, versions, changes, and the device it is read from."""
