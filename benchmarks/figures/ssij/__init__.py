"""Figures of the paper on SSIJ."""
