"""The one type that kernels speak of."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
