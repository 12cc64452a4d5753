"""Figures of the paper on X-HYBRIDJOIN and its tuning."""
