import math

import pytest

from adjoin import OptionError
from adjoin.semistream.models.iteration import loop_seconds
from adjoin.semistream.models.setting import CostConstants, Setting, split_memory


@pytest.mark.parametrize("name", ["memory_bytes", "master_rows", "master_row_bytes", "waiting_row_bytes"])
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_sizes_are_checked(name, value):
    sizes = {"memory_bytes": 1, "master_rows": 1, "master_row_bytes": 1, "waiting_row_bytes": 1, name: value}
    with pytest.raises(OptionError, match=name):
        Setting(**sizes)


@pytest.mark.parametrize(
    "constants",
    [
        {"positioning_seconds": -1, "byte_seconds": 1},
        {"positioning_seconds": 1, "byte_seconds": 0},
        {"positioning_seconds": 1, "byte_seconds": 1, "append_seconds": math.nan},
    ],
)
def test_constants_are_checked(constants):
    with pytest.raises(OptionError, match="_seconds="):
        CostConstants(**constants)


def test_memory_is_split_by_weight():
    assert split_memory(100, 3, 1) == (75, 25)
    with pytest.raises(OptionError, match="weights"):
        split_memory(100, 0, 1)


def test_the_parts_of_an_iteration():
    constants = CostConstants(0.5, 1e-3, 1e-2, 1, 2, 3, 4)
    assert loop_seconds(constants, 1000.0, 50.0, 7.0) == pytest.approx(0.5 + 1 + 0.5 + 7 * 10)
