"""The one type in the signatures of kernels."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
