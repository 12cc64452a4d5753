"""R-MESHJOIN: MESHJOIN whose portions do not depend on the size of the master."""

from functools import partial

from adjoin.semistream.meshjoin.meshjoin import MeshJoin, Scan


class RMeshJoin(MeshJoin):
    """MESHJOIN with rows that enter whenever there is room.

    How it works: as `MeshJoin`, but the size of a portion depends on reading and memory, not on the size of
    the master, and rows enter as soon as there is room instead of evenly over the round.

    Args:
        disk_pages: Pages of a portion; by default where reading and memory are in balance.
        master, on, how, memory, columns, within, between, suffix, device, clock, pages, shared_index: See
            `SSIJ`. The index is never part of `memory`, whatever `shared_index` says.

    Cost:
        As `MeshJoin`; all of the memory is used even if the rows of a round cannot be divided evenly.

    Reference:
        Naeem, Dobbie, Weber, Alam: R-MESHJOIN for Near-Real-Time Data Warehousing, DOLAP 2010 (the idea, as
        told by its abstract: the size of a stream partition does not depend on the number of portions).
    """

    algorithm = partial(Scan, is_even=False)
