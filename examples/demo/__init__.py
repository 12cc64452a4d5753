"""The main job end to end: enrich sales, key them and write them exactly once, while products change."""
