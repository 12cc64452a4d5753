"""The front stage: a cache of master rows in front of any other join."""
