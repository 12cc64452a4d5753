"""Every option of every operator is visible where a user looks for it."""

import inspect

import pytest

from adjoin.semistream.algorithms import ALGORITHM_NAMES, algorithm_named
from tests.unit.semistream.shop import build, products

OPTIONS = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_options_are_in_the_signature_and_in_the_docstring(name):
    kind = algorithm_named(name)
    options = inspect.signature(kind).parameters
    assert list(options)[:4] == ["master", "on", "how", "memory"]
    assert {option.kind for option in options.values()} <= set(OPTIONS)
    documented = (kind.__doc__ or "").partition("Args:")[2]
    assert [option for option in options if option not in documented] == []


@pytest.mark.parametrize("name", ALGORITHM_NAMES)
def test_an_unknown_option_is_refused(name, tmp_path):
    kind = algorithm_named(name)
    with pytest.raises(TypeError, match="disc_pages"):
        kind(build(products(10), tmp_path), on="id", disc_pages=4)  # type: ignore[call-arg]


def test_a_front_stage_has_the_options_of_the_join_behind_it_and_its_own():
    behind = inspect.signature(algorithm_named("xhybridjoin")).parameters
    front = inspect.signature(algorithm_named("xhybridjoin+front")).parameters
    assert list(front) == [*behind, "front"]
    assert all(front[name].default == behind[name].default for name in behind)
