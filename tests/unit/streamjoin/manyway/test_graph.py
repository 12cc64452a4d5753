"""Conditions as text become a tree of relations, or an error that says why not."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from adjoin import OptionError, SchemaError
from adjoin.streamjoin.manyway.graph import JoinGraph, _distance
from adjoin.streamjoin.manyway.spec import ManyInputs

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c d", pa.int64()), ("t", pa.string())])
RELATIONS = {f"r{number}": SCHEMA for number in range(1, 6)}


def some(count):
    return dict(list(RELATIONS.items())[:count])


def test_a_chain_and_its_paths():
    graph = JoinGraph(some(4), ["r1.a = r2.a", "r2.b=r3.b", ' r3 . "c d" = r4.a '])
    assert [edge.ends for edge in graph.edges] == [(0, 1), (1, 2), (2, 3)]
    assert [number for number, _ in graph.path(0, [1, 1, 1, 1])] == [1, 2, 3]
    # The heavier branch comes last: its blocks turn fastest.
    assert [number for number, _ in graph.path(1, [1, 1, 1, 1])] == [0, 2, 3]
    assert [number for number, _ in graph.path(1, [9, 1, 1, 1])] == [2, 3, 0]


def test_every_relation_on_a_path_is_joined_with_an_earlier_one():
    graph = JoinGraph(RELATIONS, ["r1.a = r2.a", "r1.b = r3.a", "r3.b = r4.a", "r5.a = r3.a"])
    for root in range(5):
        before = {root}
        for number, edge in graph.path(root, [1] * 5):
            assert edge.other(number) in before
            before.add(number)
        assert before == set(range(5))


def test_several_equalities_are_one_key():
    spec = ManyInputs(some(2), ["r1.a = r2.b", "r2.a = r1.b"])
    (edge,) = spec.graph.edges
    assert edge.condition.columns(0) == ("a", "b")
    assert edge.condition.columns(1) == ("b", "a")


def test_edges_have_the_order_in_which_they_are_mentioned():
    on = ["r1.a = r2.a", "abs(r2.b - r3.b) <= 2", "r4.a between r3.a and r3.b", "r2.b = r1.b"]
    graph = JoinGraph(some(4), on)
    assert [edge.ends for edge in graph.edges] == [(0, 1), (1, 2), (2, 3)]
    assert graph.edges[0].text == "r1.a = r2.a and r1.b = r2.b"
    assert graph.edges[1].text == on[1]


def test_equalities_are_combined_without_duplicates():
    (edge,) = JoinGraph(some(2), ["r1.a = r2.b", "r1.b = r2.b", "r2.b = r1.a"]).edges
    assert edge.condition.columns(0) == ("a", "b")
    assert edge.condition.columns(1) == ("b", "b")


def test_the_order_of_key_columns_does_not_matter():
    spec = ManyInputs(some(3), ["r1.a = r2.a", "r1.b = r2.b", "r2.b = r3.b", "r2.a = r3.a"])
    assert spec.has_one_key


def test_either_side_may_have_the_narrower_type():
    relations = {"x": pa.schema([("k", pa.float64())]), "y": pa.schema([("k", pa.int32())])}
    for on in ("x.k = y.k", "y.k = x.k", "abs(x.k - y.k) <= 2"):
        assert len(JoinGraph(relations, [on]).edges) == 1


def test_names_that_are_not_identifiers_are_quoted():
    graph = JoinGraph({"order-items": SCHEMA, "r2": SCHEMA}, ['"order-items"."c d" = r2.a'])
    assert graph.edges[0].ends == (0, 1)


def test_conditions_with_the_same_keys_share_an_attribute():
    star = ManyInputs(some(4), ["r1.a = r2.a", "r2.a = r3.a", "r3.a = r4.a"])
    assert [len(edges) for edges in star.attributes] == [1, 1, 1, 1]
    assert star.has_one_key
    chain = ManyInputs(some(3), ["r1.a = r2.a", "r2.b = r3.b"])
    assert [len(edges) for edges in chain.attributes] == [1, 2, 1]
    assert not chain.has_one_key
    near = ManyInputs(some(3), ["r1.a = r2.a", "abs(r2.a - r3.a) <= 2"])
    assert [len(edges) for edges in near.attributes] == [1, 2, 1]


def test_distances():
    assert _distance("5") == 5
    assert _distance("0.05") == Decimal("0.05")
    assert _distance("INTERVAL '90 seconds'") == datetime.timedelta(seconds=90)
    assert _distance("interval '1 hour'") == datetime.timedelta(hours=1)
    with pytest.raises(OptionError, match="fortnight"):
        _distance("interval '1 fortnight'")


@pytest.mark.parametrize(
    ("count", "on", "words"),
    [
        (1, [], "two or more"),
        (2, "r1.a = r2.a", "list of conditions"),
        (2, ["r1.a > r2.a"], "cannot be read"),
        (2, ["r1.a = r9.a"], "r9"),
        (2, ["r1.a = r1.b"], "with itself"),
        (2, ["r1.a = r2.a", "abs(r1.b - r2.b) <= 1"], "only equalities can be combined"),
        (2, ["abs(r2.b - r1.b) <= 1", "r1.a = r2.a"], "only equalities can be combined"),
        (2, ["r1.a between r2.a and r2.b", "r2.a between r1.a and r1.b"], "only equalities can be combined"),
        (3, ["r1.a = r2.a", "r2.b = r3.b", "r3.a = r1.b"], "cycle"),
        (4, ["r1.a = r2.a", "r3.a = r4.a"], "r3, r4"),
        (3, ["r1.a = r2.a"], "no condition connects r1 with r3"),
        (3, ["r1.a between r2.a and r3.a", "r1.a = r3.a"], "same relation"),
    ],
)
def test_conditions_that_do_not_form_a_tree_are_refused(count, on, words):
    with pytest.raises(OptionError, match=words):
        JoinGraph(some(count), on)


@pytest.mark.parametrize(
    ("on", "words"),
    [
        (["r1.x = r2.a"], "no column 'x'"),
        (["abs(r1.t - r2.t) <= 1"], "range predicate"),
        (["r1.t = r2.a"], r"in the condition 'r1\.t = r2\.a'"),
    ],
)
def test_columns_that_cannot_be_compared_are_refused(on, words):
    with pytest.raises(SchemaError, match=words):
        JoinGraph(some(2), on)


def test_output_columns_are_named_after_their_relations():
    spec = ManyInputs(some(2), ["r1.a = r2.a"], ["r2_t", "r1_c d"])
    assert spec.schema.names == ["r1_c d", "r2_t"]
    with pytest.raises(OptionError, match="r1_x"):
        ManyInputs(some(2), ["r1.a = r2.a"], ["r1_x"])
    with pytest.raises(SchemaError, match="a_b_c"):
        ManyInputs(
            {"a": pa.schema([("b_c", pa.int64())]), "a_b": pa.schema([("c", pa.int64())])}, ["a.b_c = a_b.c"]
        )
