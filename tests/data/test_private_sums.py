"""Columns described by noised sums: what one client can change, what they find, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.core.keys import Key
from coterie.data.tabular.encoder import CategoryRule, NumberRule
from coterie.data.tabular.inputs import encode_inputs
from coterie.data.tabular.raw import Column, Encode, RawTable
from coterie.data.tabular.reports import bounded_reports
from coterie.errors import Code, ConfigError
from tests.refusals import refuses

CLIENTS = 400
ROWS = 5
RANGES = {"age": (0.0, 100.0)}
VALUES = {"ward": ("a", "b")}
COLUMNS = (Column("age", "number"), Column("fever", "boolean"), Column("ward", "category", ("a",)))


def table_of(**options: Any) -> RawTable:
    rng = np.random.default_rng(0)
    count = CLIENTS * ROWS
    age = rng.normal(60, 10, count)
    fever = (rng.random(count) < 0.3).astype(float)
    fever[rng.random(count) < 0.2] = np.nan
    values = np.column_stack([age, fever, np.zeros(count)])
    encode = {"noise": 1.0, "ranges": RANGES, "values": VALUES, **options}
    return RawTable(COLUMNS, values, Encode(**encode))


HELD = list(np.arange(CLIENTS * ROWS).reshape(CLIENTS, ROWS))


def rules_of(table: RawTable, seed: int = 0) -> list[Any]:
    _, made = encode_inputs(table, np.arange(CLIENTS * ROWS), HELD, Key(seed))
    return list(made.encoder.rules)


def test_with_many_clients_the_noise_hardly_moves_mean_and_deviation() -> None:
    # Of the variance, 100, the noise has a standard deviation of some 10.
    age, fever, ward = rules_of(table_of(noise=0.1))
    assert isinstance(age, NumberRule)
    assert age.center == pytest.approx(60, abs=1)
    assert age.scale == pytest.approx(10, abs=3)
    assert fever.center == pytest.approx(0.3, abs=0.05)
    # Categories are those that were said, and no statistic of the rows.
    assert ward == CategoryRule("ward", ("(missing)", "a", "b"))


def test_with_one_client_little_is_left_of_it() -> None:
    table = table_of(noise=4.0)
    _, made = encode_inputs(table, np.arange(ROWS), [HELD[0]], Key(0))
    age = made.encoder.rules[0]
    assert isinstance(age, NumberRule)
    # Fewer clients than the noise hides: the middle of the range, and the spread of an even one.
    assert (age.center, age.scale) == (50.0, pytest.approx(100 / np.sqrt(12)))


def test_one_client_moves_the_sum_by_the_length_that_the_noise_is_for() -> None:
    table = table_of()
    table.values[:ROWS] = [[1e9, 1.0, 0.0]] * ROWS  # beyond its range, no value missing
    report = bounded_reports(table, HELD)[0]
    assert report.tolist() == [1.0] * 6
    assert np.linalg.norm(bounded_reports(table, HELD), axis=1).max() <= np.sqrt(6)
    assert bounded_reports(table, [np.empty(0, np.int64)]).tolist() == [[0.0] * 6]


def test_the_noise_is_that_of_the_seed() -> None:
    table = table_of()
    assert rules_of(table) == rules_of(table)
    assert rules_of(table, seed=1)[0] != rules_of(table)[0]


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"ranges": {}}, ("missing", "data.encode.ranges")),
        ({"values": {}}, ("missing", "data.encode.values")),
        ({"noise": None}, ("in-conflict", "data.encode.ranges")),
        ({"noise": None, "ranges": {}}, ("in-conflict", "data.encode.values")),
    ],
)
def test_what_has_to_be_known_without_looking_is_refused_in_one_line(
    options: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(ConfigError, *refusal) as error:
        rules_of(table_of(**options))
    assert "\n" not in str(error.value)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"age: expected \[lowest, highest\]"):
        Encode(noise=1.0, ranges={"age": (5.0, 5.0)})
