"""What the algorithms share: budget, arena, caches, buffers, read plan, spill."""
