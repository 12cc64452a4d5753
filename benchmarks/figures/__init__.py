"""The papers' figures, measured again: what each claims, what we measure, and why it differs if it does.

A figure is a file `figure_*.py` or `table_*.py` in the folder of its paper. It declares a `Figure`: sweep,
contenders, what is measured (`measures`), the claim, and a function that judges the claim. Masters, streams,
joins and their variants are named in `masters`, `streams`, `setting` and `variants`; they have the paper's
sizes, which the scale divides. `run` measures, `store` stores, `draw` and `page` show what is stored.
"""
