"""The choice between the joins, in settings from all papers."""
