"""How much faster than MESHJOIN a cache can make it, by the paper's own model."""

from adjoin.semistream.models.cmeshjoin import speed_up
from benchmarks.figures.cmeshjoin.measures import sizes_of
from benchmarks.figures.cmeshjoin.setting import CacheSetting


def allowed(setting: CacheSetting) -> float:
    """The speedup with the best cache, with the paper's row sizes."""
    return speed_up(sizes_of(setting.with_(model="paper")))
