"""Every option of a join of streams is visible in its signature and described in its docstring."""

import inspect
import re

import pytest

from adjoin import DINER, MINER, RPJ, HashMergeJoin, MJoin, ProgressiveMergeJoin, SymmetricHashJoin, XJoin
from adjoin.streamjoin.base.contract import SpillOptions

OPERATORS = [DINER, MINER, SymmetricHashJoin, XJoin, ProgressiveMergeJoin, HashMergeJoin, RPJ, MJoin]


def options_of(kind):
    return inspect.signature(kind).parameters


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_option_is_hidden(operator):
    kinds = {parameter.kind for parameter in options_of(operator).values()}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    assert set(options_of(SpillOptions)) <= set(options_of(operator))


@pytest.mark.parametrize("operator", [*OPERATORS, SpillOptions])
def test_every_option_is_described(operator):
    arguments = inspect.cleandoc(operator.__doc__).split("Args:")[1].split("\n\n")[0]
    described = re.findall(r"^    (\w[\w, ]*): ", arguments, re.MULTILINE)
    assert {name for names in described for name in names.split(", ")} == set(options_of(operator))


@pytest.mark.parametrize("operator", OPERATORS)
def test_keys_and_memory_are_positional_and_all_else_is_by_name(operator):
    positional = [
        name
        for name, parameter in options_of(operator).items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    inputs = ["relations"] if operator in (MINER, MJoin) else ["left", "right"]
    assert positional == [*inputs, "on", "memory"]
