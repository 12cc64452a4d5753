"""Sales enriched, keyed and written exactly once, while the products change: the main job, end to end."""
