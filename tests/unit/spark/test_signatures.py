"""The options that users see: every one by name, the same name and default everywhere."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import adjoin
from adjoin import etl

PUBLIC = [adjoin.enrich, etl.new_rows, etl.surrogate_keys, etl.deduplicate, etl.apply_changes]
ON_TOP_OF_ENRICH = [etl.new_rows, etl.surrogate_keys, etl.deduplicate]


@pytest.mark.parametrize("function", PUBLIC)
def test_every_option_is_in_the_signature_and_in_the_docstring(function: Callable[..., Any]) -> None:
    options = inspect.signature(function).parameters
    kinds = {option.kind for option in options.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    documented = inspect.getdoc(function) or ""
    assert not [name for name in options if f"\n    {name}: " not in documented]


@pytest.mark.parametrize("function", ON_TOP_OF_ENRICH)
def test_options_shared_with_enrich_have_its_defaults(function: Callable[..., Any]) -> None:
    shared = inspect.signature(adjoin.enrich).parameters
    options = inspect.signature(function).parameters
    own = {"txn", "order_by", "ttl", "time", "key", "attributes", "keep_natural", "unknown_key"}
    assert options.keys() - shared.keys() <= own
    assert {"memory", "algorithm", "partitions", "route", "name"} <= options.keys()
    for name in options.keys() - own - {"name"}:
        assert options[name].default == shared[name].default, name
