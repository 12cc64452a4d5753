"""SSIJ: a stream joined with an indexed master, in three phases."""

from adjoin.semistream.ssij.operator import SSIJ

__all__ = ["SSIJ"]
