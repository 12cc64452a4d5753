"""CMESHJOIN: MESHJOIN behind a cache of the master rows that the stream wants most."""

from adjoin.semistream.frontstage.stage import FrontStage
from adjoin.semistream.meshjoin.meshjoin import MeshJoin

CMeshJoin = FrontStage(MeshJoin)
