"""What the papers' joins cost, as functions of memory, master and stream: no I/O, no state.

Every model has the equations as printed and, where those are wrong, a corrected form that was checked by
simulation. `docs/cost_models.md` lists both, with the symbols.
"""
