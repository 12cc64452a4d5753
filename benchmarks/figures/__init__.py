"""The papers' figures, measured again: what each claims, what comes out here, and why where it differs.

A figure is a file `figure_*.py` or `table_*.py` in the folder of its paper. It declares a `Figure`: sweep,
contenders, what is measured (`measures`), the claim, and a function that decides about the claim. Masters,
streams, joins and variants of them are named in `masters`, `streams`, `setting` and `variants`; they have the
sizes of the paper, which the scale divides. `run` measures, `store` stores, `draw` and `page` show what is
stored.
"""
