"""R-MESHJOIN: MESHJOIN whose portions do not depend on the size of the master."""

from adjoin.semistream.meshjoin.meshjoin import MeshJoin


class RMeshJoin(MeshJoin):
    """MESHJOIN with rows that enter whenever there is room.

    How it works: as `MeshJoin`, but the size of a portion is what reading and memory ask for, whatever the
    master's size, and rows enter as soon as there is room instead of evenly over the round.

    See `QueuedJoin` for the arguments; `disk_pages` are the pages of a portion.

    Cost:
        As `MeshJoin`; all of the memory is used even if the rows of a round cannot be divided evenly.

    Reference:
        Naeem, Dobbie, Weber, Alam: R-MESHJOIN for Near-Real-Time Data Warehousing, DOLAP 2010 (the idea, as
        told by its abstract: the size of a stream partition does not depend on the number of portions).
    """

    _is_even = False
