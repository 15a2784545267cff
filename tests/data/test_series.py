"""Series: windows split by time without a leak, gaps, and persistence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.keys import Key
from coterie.data import Population, load_samples, make_partition, populate
from coterie.data.tabular import inputs
from coterie.data.tabular.raw import Window
from coterie.data.tabular.tables import persistence, split_windows
from coterie.errors import Code, ConfigError, DataError
from coterie.runs.held_out import on_validation
from tests.refusals import refuses

windows = st.builds(
    Window,
    past=st.integers(1, 12),
    horizon=st.integers(1, 6),
    stride=st.integers(1, 5),
    test_fraction=st.floats(0.1, 0.6),
)


@settings(max_examples=60, deadline=None)
@given(window=windows, rows=st.integers(2, 90), seed=st.integers(0, 9))
def test_no_row_is_in_training_and_in_test(window: Window, rows: int, seed: int) -> None:
    """Not as an input and not as a target, and every test row is later than every training row."""
    rng = np.random.default_rng(seed)
    target = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows))
    moments = np.arange(rows, dtype=float)
    moments[rows // 2 :] += float(rng.integers(0, 2))  # a gap, or none
    found = split_windows(moments, target, window)
    reach = window.past + window.horizon - 1
    steps = np.append(np.arange(window.past), reach)
    train = {int(row) for start in found.train for row in start + steps}
    test = {int(row) for start in found.test for row in start + steps}
    assert max(train, default=-1) < min(test, default=rows)
    for start in (*found.train, *found.test):
        assert start + reach < rows
        assert not np.isnan(target[start + reach])
        assert moments[start + reach] - moments[start] == reach


def table(stations: int = 3, hours: int = 60) -> dict[str, Any]:
    """Stations whose value is the number of the hour, and a text column; rows in any order."""
    rng = np.random.default_rng(0)
    order = rng.permutation(stations * hours)
    hour = np.tile(np.arange(hours), stations)[order]
    return {
        "time": (np.datetime64("2020-01-01", "us") + hour * np.timedelta64(1, "h")),
        "value": hour.astype(float),
        "wind": np.array(["N", "S"])[hour % 2],
        "client": np.repeat(["a", "b", "c"], hours)[order],
    }


def load(folder: Path, columns: dict[str, Any], **options: Any) -> Population:
    path = folder / "t.parquet"
    pq.write_table(pa.table(columns), path)
    window = {"past": 4, "horizon": 2, "season": 3, **options.pop("window", {})}
    source = {
        **{"source": "file", "path": str(path), "features": "*", "label": "value"},
        **{"window": window, "targets": "numbers", "encode": {"scaling": "none"}, **options},
    }

    targets = source.pop("targets")
    samples = load_samples(source, targets=targets)
    return populate(samples, make_partition(samples, {"kind": "natural"}, Key(0)))


def test_inputs_are_the_past_and_targets_the_future(tmp_path: Path) -> None:
    made = load(tmp_path, table())
    assert made.shape == (4, 3)
    assert made.table is not None
    assert made.table.encoder.features == ("value", "wind = N", "wind = S")
    first = made.x[:, 0, 0]
    assert (made.x[:, :, 0] == first[:, None] + torch.arange(4)).all()
    assert (made.y == first + 5).all()
    assert (made.naive["persistence"] == first + 3).all()
    assert (made.naive["seasonal persistence"] == first + 2).all()
    assert made.names == ("a", "b", "c")
    for train, test in zip(made.train, made.test, strict=True):
        assert len(train)
        assert made.y[train].max() < made.x[test, 0, 0].min()


def test_statistics_are_of_training_rows_alone(tmp_path: Path) -> None:
    made = load(tmp_path, table(), encode={"scaling": "standard"})
    assert made.table is not None
    # Each row counts once, however many inputs it is in; the last training target is no input.
    rows = np.arange(int(0.8 * 60) - 2)
    assert made.table.encoder.rules[0].center == pytest.approx(rows.mean())  # type: ignore[union-attr]


def test_the_season_of_persistence() -> None:
    target = np.array([0.0, 1, np.nan, 3, 4, 5, 6, 7])
    starts = np.array([0, 1])
    window = Window(past=4, horizon=1, season=2)
    found = persistence(target, starts, window)
    assert found["persistence"].tolist() == [3, 4]
    # One season before hour 4 is hour 2, which is unknown: the hour before it.
    assert found["seasonal persistence"].tolist() == [1, 3]
    with refuses(DataError, "out-of-range", "data.window.season"):
        persistence(target, starts, Window(past=4, horizon=1, season=9))


def test_inputs_that_take_too_much_memory_name_their_widest_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "LARGEST", 1000)
    columns = table()
    columns["wind"] = [f"w{at % 9}" for at in range(len(columns["wind"]))]
    with refuses(DataError, "out-of-range", "data.window.stride") as caught:
        load(tmp_path, columns)
    assert "column wind" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "options", "refusal"),
    [
        ({}, {"window": {"time": "tim"}}, ("not-found", "data.window.time")),
        ({}, {"window": {"past": 400}}, ("out-of-range", "data.window")),
        ({}, {"label": "wind"}, ("wrong-type", "t.parquet")),
        ({}, {"targets": "classes"}, ("does-not-fit", "data.window")),
        ({"time": np.zeros(180)}, {}, ("in-conflict", "t.parquet")),
        # Its square, which the loss takes, is infinite in float32.
        ({"value": np.full(180, 1e20)}, {}, ("out-of-range", "t.parquet")),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(DataError, *refusal) as caught:
        load(tmp_path, {**table(), **change}, **options)
    assert "\n" not in str(caught.value)


def test_times_as_text_are_dates_or_refused(tmp_path: Path) -> None:
    """In the order of letters the tenth of a month would come before the second."""
    columns = table()
    moments = columns["time"]
    expected = load(tmp_path, columns)
    found = load(tmp_path, {**columns, "time": [str(one) for one in moments]})
    assert torch.equal(found.x, expected.x)
    assert torch.equal(found.y, expected.y)
    days = [one.item().strftime("%d.%m.%Y %H:%M") for one in moments]
    with refuses(DataError, "wrong-type", "t.parquet"):
        load(tmp_path, {**columns, "time": days})


@pytest.mark.parametrize("stride", [1, 3])
def test_validation_samples_of_a_series_share_no_row_with_training(
    tmp_path: Path, stride: int
) -> None:
    """As for testing: they are the last ones, and the past of none was trained on."""
    made = load(tmp_path, table(), window={"stride": stride})
    found = on_validation(made, 0.25, Key(0))
    first = made.x[:, 0, 0].numpy()
    for before, train, held in zip(made.train, found.train, found.test, strict=True):
        assert len(held) == round(0.25 * len(before))
        assert set(train.tolist()) | set(held.tolist()) <= set(before.tolist())
        assert len(train) > len(before) // 2
        # The target lies five rows after the first row of an input.
        assert first[train].max() + 5 < first[held].min()


def test_series_are_not_split_at_random(tmp_path: Path) -> None:
    pq.write_table(pa.table(table()), tmp_path / "t.parquet")
    source = {
        "source": "file",
        "path": str(tmp_path / "t.parquet"),
        "features": "*",
        "label": "value",
        "window": {"past": 4},
    }

    samples = load_samples(source, targets="numbers")
    for partition in ({"kind": "iid", "clients": 2}, {"kind": "natural", "split": "random"}):
        with refuses(ConfigError, "does-not-fit", "data.partition.kind"):
            make_partition(samples, partition, Key(0))
