"""Memory within a budget: the arena, the file it may be mapped from, and the columns of pages in it."""
