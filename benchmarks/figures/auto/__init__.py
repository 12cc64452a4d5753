"""The choice between the joins, on settings of all papers."""
