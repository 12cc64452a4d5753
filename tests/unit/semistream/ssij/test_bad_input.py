"""What is wrong is refused at the door, with its value; nothing is lost."""

import pyarrow as pa
import pytest

from adjoin import SSIJ, AdjoinError, BudgetError, CorruptionError, OptionError, SchemaError
from tests.unit.semistream.shop import build, products, results, sales


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"on": "nothing"}, SchemaError, "must name the key"),
        ({"how": "outer"}, OptionError, "inner, left, semi, anti"),
        ({"columns": ["price"]}, SchemaError, "no column 'price'"),
        ({"within": -1}, OptionError, "negative"),
        ({"within": "far"}, OptionError, "give a number or a timedelta"),
        ({"within": 1, "between": ("a", "b")}, OptionError, "not both"),
        ({"decay": 2}, OptionError, "decay=2"),
        ({"max_scan": 0}, OptionError, "max_scan=0"),
        ({"input_rows": 0}, OptionError, "input_rows=0"),
        ({"deadline": -1}, OptionError, "deadline=-1"),
        ({"memory": "tiny"}, OptionError, "memory='tiny'"),
        ({"memory": 1000}, BudgetError, "least that works is"),
    ],
)
def test_bad_arguments_are_refused_with_their_value(options, error, words, tmp_path):
    master = build(products(10), tmp_path)
    with pytest.raises(error, match=words):
        SSIJ(master, **{"on": "id", **options})


def test_the_least_memory_named_works_and_a_byte_less_does_not(tmp_path):
    master = build(products(3000), tmp_path)
    with pytest.raises(BudgetError) as refusal:
        SSIJ(master, on="id", memory=1)
    least = int(str(refusal.value).split("least that works is ")[1].split()[0])
    with pytest.raises(BudgetError):
        SSIJ(master, on="id", memory=least - 1)
    assert results(SSIJ(master, on="id", memory=least), [sales([0, 2, 4])]).num_rows == 3


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (pa.record_batch({"other": [1]}), "no column 'id'"),
        (pa.record_batch({"id": ["one"]}), "cast the stream's column"),
        (pa.record_batch({"id": [1], "name_master": [1], "name": [1]}), "suffix"),
    ],
)
def test_bad_batches_are_refused_before_anything_is_lost(batch, words, tmp_path):
    join = SSIJ(build(products(10), tmp_path), on="id", memory="1MB")
    with pytest.raises(SchemaError, match=words):
        join.push(batch)
    assert results(join, [sales([4])]).num_rows == 1


def test_a_damaged_page_is_named_and_never_read_as_rows(tmp_path):
    master = build(products(2000), tmp_path)
    page = 7
    file = master.files[master.index.file[page]]
    at = int(master.index.block[page]) * 4096 + 1000
    with open(file.path, "r+b") as data:
        data.seek(at)
        byte = data.read(1)[0]
        data.seek(at)
        data.write(bytes([byte ^ 1]))
    join = SSIJ(master, on="id", memory="1MB")
    with pytest.raises(CorruptionError, match=f"{file.name}.*page {page}"):
        list(join.run([sales([int(master.index.first[page])])]))


def test_results_must_be_consumed_before_the_next_call_and_none_after_the_end(tmp_path):
    join = SSIJ(build(products(10), tmp_path), on="id", memory="1MB")
    unread = join.push(sales([2]))
    with pytest.raises(AdjoinError, match="not consumed"):
        join.push(sales([4]))
    list(unread)
    assert sum(batch.num_rows for batch in join.finish()) == 1
    with pytest.raises(AdjoinError, match="ended"):
        join.push(sales([4]))
