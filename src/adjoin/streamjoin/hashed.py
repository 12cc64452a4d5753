"""What joins have in common that find matches by hash: equality only, keys in an order by lot."""

from abc import abstractmethod
from typing import Any

import pyarrow as pa

from adjoin.errors import OptionError
from adjoin.streamjoin.frame import SpillingJoin
from adjoin.streamjoin.spec import Keyed, On


class HashedJoin(SpillingJoin):
    """A join by equality in which neighbours in the index, and on disk, are those with near hashes.

    A key is scattered one to one, so that a range of scattered keys is a hash partition, and the index in
    the order of scattered keys holds every partition in one piece.
    """

    @abstractmethod
    def __init__(self, left: pa.Schema, right: pa.Schema, on: On, memory: int | str, **options: Any) -> None:
        super().__init__(left, right, on, memory, **options)
        if not self._spec.is_equality:
            self.close()
            raise OptionError(
                f"{type(self).__name__} joins equal keys alone; DINER takes within= and between="
            )

    def _keyed(self, side: int, piece: pa.RecordBatch) -> Keyed:
        return super()._keyed(side, piece).scattered()
