"""Predictions for new rows: known clients, new ones with and without labels, and calibration."""

from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.cli.main import invoke
from coterie.data.tabular.new_rows import encoded, read_new_rows
from coterie.errors import DataError
from coterie.experiment import check
from coterie.export.calibration import Calibrator
from coterie.export.table_outputs import calibrated, columns_of
from coterie.runs.compose import compose
from coterie.runs.run import run_config
from tests.data.test_tables import write
from tests.refusals import refuses

CLIENTS = 8
EACH = 60


def hospitals(rows: int = EACH, seed: int = 0) -> dict[str, Any]:
    """Hospitals of two kinds: in one a high value means ill, in the other well."""
    rng = np.random.default_rng(seed)
    value = rng.normal(size=CLIENTS * rows)
    hospital = np.repeat(np.arange(CLIENTS), rows)
    ill = (value + 0.3 * rng.normal(size=len(value))) * np.where(hospital % 2, -1, 1) > 0
    return {
        "value": [None if rng.random() < 0.05 else float(one) for one in value],
        "ward": rng.choice(["a", "b"], len(value)),
        "y": np.where(ill, "ill", "well"),
        "client": [f"h{one}" for one in hospital],
    }


def tables(path: str, **more: Any) -> dict[str, Any]:
    return {
        "data": {
            "source": "file",
            "path": path,
            "features": "*",
            "partition": {"kind": "natural"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 5, "lr": 0.2},
        "train": {"rounds": 3, "hold_out": 0.2},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 4},
        "engine": {"name": "serial"},
        **more,
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predictions")
    run_config(check(tables(write(folder, hospitals()))), folder / "run")
    return folder / "run"


def predicted(run: Path, new: dict[str, Any], folder: Path, name: str = "new.csv") -> list[Any]:
    path = write(folder, new, name)
    assert invoke(["predict", str(run), "--data", path, "--out", str(folder / "p.csv")]) == 0
    with (folder / "p.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_known_and_new_clients(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new client with the labels of odd hospitals is in their group, and predicted by it."""
    high = {"value": [2.0, 2.0, -2.0], "ward": ["a", None, "never seen"]}
    new = {
        "value": high["value"] * 4,
        "ward": high["ward"] * 4,
        "y": ["ill"] * 6 + ["well", "well", "ill"] + [None] * 3,
        "client": ["h0"] * 3 + ["h1"] * 3 + ["like odd"] * 3 + ["unknown"] * 3,
    }
    rows = predicted(run, new, tmp_path)
    printed = capsys.readouterr().out
    by_client = {name: [row for row in rows if row["client"] == name] for name in new["client"]}
    answers = {name: [row["prediction"] for row in found] for name, found in by_client.items()}
    assert answers["h0"] == ["ill", "ill", "well"]
    assert answers["h1"] == answers["like odd"] == ["well", "well", "ill"]
    assert by_client["h1"][0]["group"] == by_client["like odd"][0]["group"]
    assert {name: found[0]["placed by"] for name, found in by_client.items()} == {
        "h0": "known client",
        "h1": "known client",
        "like odd": "its labels in 3 rows",
        "unknown": "no labels: the model for clients without a group",
    }
    assert by_client["unknown"][0]["group"] == "-1"
    assert "like odd: group" in printed
    assert "unknown: no group" in printed
    line = next(line for line in printed.splitlines() if line.startswith("probabilities: "))
    assert line.startswith("probabilities: calibrated by Platt scaling on")
    # Which rows each of the two groups was calibrated on.
    assert "group 0: " in line or "all groups: on all samples" in line
    own = [
        int(part)
        for part in re.findall(r"group \d: by Platt scaling on (\d+) of its own samples", line)
    ]
    (together,) = re.findall(r"on (\d+) held-out", line)
    assert not own or sum(own) <= int(together)
    for row in rows:
        well = float(row["probability of well"])
        assert float(row["score"]) == pytest.approx(max(well, 1 - well))
        assert 0 < float(row["calibrated probability of well"]) < 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            1e308,
            r"column value: out of range \(1e\+308 in row 1\); expected numbers up to 3\.4e\+38",
        ),
        (
            "1e308",
            r"column value: out of range \(1e\+308 in row 1\); expected numbers up to 3\.4e\+38",
        ),
        (-1e39, r"column value: out of range \(-1e\+39 in row 1"),
        (float("inf"), r"column value: [a-z ]+ \(infinity in row 1"),
    ],
)
def test_numbers_beyond_float32_are_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], value: Any, words: str
) -> None:
    """They ended as a score of nan and the first class, without a word."""
    # A column of text is read as its numbers, too.
    kind = type(value)
    table = write(
        tmp_path, {"value": [kind(0.5), value], "ward": ["a", "b"], "client": ["h0", "h0"]}
    )
    out = str(tmp_path / "p.csv")
    code = invoke(["predict", str(run), "--data", table, "--out", out])
    said = capsys.readouterr().err
    assert (code, len(said.splitlines())) == (3, 1)
    assert re.search(words, said)


def test_a_number_that_is_beyond_float32_once_it_is_scaled_is_one_line() -> None:
    rule = {"name": "age", "fill": 0.0, "center": 1.0, "scale": 1e-3, "flag": False}
    with refuses(DataError, "out-of-range", "data"):
        encoded([rule], {"age": np.array([1.0, 3e38])}, 2)


def test_outputs_that_are_no_numbers_are_one_line() -> None:
    """A model that diverged gave a score of nan and the first class."""
    task = {"kind": "classification", "labels": ["ill", "well"]}
    for outputs in ([[0.0, math.nan]], [[math.inf, 0.0]]):
        with refuses(DataError, "not-finite", "--data"):
            columns_of(task, torch.tensor(outputs))


def test_training_on_numbers_beyond_float32_is_one_line(tmp_path: Path) -> None:
    table = hospitals()
    table["value"][3:5] = [1e308, -1e308]
    with refuses(DataError, "out-of-range", "t.parquet"):
        run_config(check(tables(write(tmp_path, table))), tmp_path / "run")


def test_many_new_clients_take_no_network_each(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 of them took 33 s: for each the network was copied and all rows were looked through."""
    from coterie.runs import spec

    copies = []
    whole = spec.copy.deepcopy
    monkeypatch.setattr(spec.copy, "deepcopy", lambda one: (copies.append(1), whole(one))[1])
    count = 300
    new = {
        "value": [2.0, -2.0] * count,
        "ward": ["a", "b"] * count,
        "y": ["ill", "well"] * count,
        # The rows of a client do not stand together.
        "client": [f"new {row % count}" for row in range(2 * count)],
    }
    rows = predicted(run, new, tmp_path)
    assert [row["client"] for row in rows] == new["client"]
    assert {row["placed by"] for row in rows} == {"its labels in 2 rows"}
    assert len({row["group"] for row in rows}) == 1
    assert len({(row["prediction"], row["score"]) for row in rows}) == 2
    assert len(copies) < 50


@pytest.mark.parametrize(
    ("method", "model", "migration"),
    [
        ({"name": "flux", "warmup_rounds": 1}, {"name": "mlp", "hidden": 8}, "none"),
        ({"name": "flux"}, {"name": "mclr"}, "per_label"),
        ({"name": "feroma", "warmup_rounds": 1}, {"name": "mlp", "hidden": 8}, "none"),
        ({"name": "pacfl", "vectors": 1}, {"name": "mclr"}, "none"),
        ({"name": "k_fed", "groups": 2}, {"name": "mclr"}, "none"),
    ],
    ids=["flux", "flux-migration", "feroma", "pacfl", "k_fed"],
)
def test_a_new_client_without_labels_is_placed_by_its_inputs(
    method: dict[str, Any],
    model: dict[str, Any],
    migration: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The wards of even and of odd hospitals are not the same, and so are their groups."""
    data = hospitals()
    odd = np.repeat(np.arange(CLIENTS), EACH) % 2 == 1
    data["ward"] = np.where(odd, "b", "a")
    path = write(tmp_path, data)
    config = tables(path, algorithm=method, model=model, train={"rounds": 5})
    config["migration"] = {"detector": migration}
    run_config(check(config), tmp_path / "run")
    values = [None if one % 7 == 0 else float(one % 5 - 2) for one in range(40)]
    new = {
        "value": values * 3 + [1.0],
        "ward": ["a"] * 40 + ["b"] * 40 + ["b"] * 40 + ["a"],
        "client": ["like even"] * 40 + ["like odd"] * 40 + ["h1"] * 40 + ["h0"],
    }
    rows = predicted(tmp_path / "run", new, tmp_path)
    found = {row["client"]: row for row in rows}
    of_run = group_sets(tmp_path / "run")
    assert of_run["even"].isdisjoint(of_run["odd"])
    assert found["like even"]["group"] in of_run["even"]
    assert found["like odd"]["group"] in of_run["odd"]
    assert found["like even"]["placed by"] == found["like odd"]["placed by"] == "its inputs"
    assert found["h1"]["placed by"] == "known client"
    assert "like odd: group" in capsys.readouterr().out


def group_sets(run: Path) -> dict[str, set[str]]:
    """The groups of the hospitals with even and with odd numbers."""
    with (run / "groups.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, set[str]] = {"even": set(), "odd": set()}
    for row in rows:
        found["odd" if int(row["client"][1:]) % 2 else "even"].add(row["group"])
    return found


def test_rows_of_the_run_are_predicted_as_the_run_scored_them(run: Path, tmp_path: Path) -> None:
    """The share of right predictions on a client's test rows is that of clients.csv."""
    rows = predicted(run, hospitals(), tmp_path, "all.parquet")
    right = np.array([row["prediction"] == row["label"] for row in rows])
    composed = compose(check(tables(str(run.parent / "t.parquet"))))
    with (run / "clients.csv").open(newline="") as file:
        for row, test in zip(csv.DictReader(file), composed.population.test, strict=True):
            assert right[test].sum() == int(row["correct"])


OWN_PARTS = {
    "fedper": ({"name": "fedper"}, {}, "one model; its own layers are untrained"),
    "groups with own heads": (
        {"name": "fedgroup", "groups": 2, "alpha": 4},
        {"personal": {"layers": ["head"]}},
        "its labels in 3 rows; its own layers are untrained",
    ),
    "ditto": (
        {"name": "ditto"},
        {},
        "one model; the shared model, instead of its own model",
    ),
    "perfedavg": (
        {"name": "perfedavg", "alpha": 2.0},
        {},
        "one model; fitted to its labels in 3 rows",
    ),
}


@pytest.mark.parametrize(("method", "more", "by"), OWN_PARTS.values(), ids=OWN_PARTS)
def test_what_clients_keep_is_in_their_predictions(
    method: dict[str, Any], more: dict[str, Any], by: str, tmp_path: Path
) -> None:
    """Clients of the run are predicted as the run scored them; a new one is served as a newcomer."""
    data = hospitals(rows=30)
    path = write(tmp_path, data)
    config = tables(path, model={"name": "mlp", "hidden": 8}, algorithm=method, **more)
    run_config(check(config), tmp_path / "run")
    new = {**data, "value": [*data["value"], 2.0, 1.0, -1.0, 0.0]}
    new["ward"] = [*data["ward"], "a", "b", "b", "a"]
    new["y"] = [*data["y"], "ill", "ill", "well", None]
    new["client"] = [*data["client"], *["new one"] * 3, "unlabelled"]
    rows = predicted(tmp_path / "run", new, tmp_path)
    right = np.array([row["prediction"] == row["label"] for row in rows])
    population = compose(check(config)).population
    with (tmp_path / "run" / "clients.csv").open(newline="") as file:
        for row, test in zip(csv.DictReader(file), population.test, strict=True):
            assert right[test].sum() == int(row["correct"])
    assert rows[0]["placed by"] == "known client"
    assert rows[-2]["placed by"] == by
    assert rows[-1]["client"] == "unlabelled"
    # Calibrated by the models that predict, not by the shared ones.
    assert 0 < float(rows[0]["calibrated probability of well"]) < 1


def test_numbers_of_clients_with_own_parts(tmp_path: Path) -> None:
    """A new client with numbers to learn is fitted to them, one without is not."""
    data = hospitals(rows=30)
    rng = np.random.default_rng(1)
    data["y"] = (2.0 * rng.normal(size=len(data["y"]))).tolist()
    path = write(tmp_path, data)
    config = tables(path, algorithm={"name": "perfedavg"}, train={"rounds": 2})
    config["local"]["lr"] = 0.01
    config["task"] = {"kind": "regression"}
    run_config(check(config), tmp_path / "run")
    new = {
        "value": [1.0, 1.0, 1.0, 1.0],
        "ward": ["a"] * 4,
        "y": [50.0, 50.0, None, None],
        "client": ["labelled", "labelled", "unlabelled", "h0"],
    }
    rows = predicted(tmp_path / "run", new, tmp_path)
    assert [row["placed by"] for row in rows[1:]] == [
        "one model; fitted to its labels in 2 rows",
        "one model; not fitted to it: no labels",
        "known client",
    ]
    assert float(rows[0]["prediction"]) > float(rows[2]["prediction"])


def test_clients_that_share_nothing_predict_for_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, hospitals(rows=30))
    run_config(check(tables(path, algorithm={"name": "local"})), tmp_path / "run")
    rows = predicted(tmp_path / "run", {"value": [2.0], "ward": ["a"], "client": ["h1"]}, tmp_path)
    assert rows[0]["prediction"] == "well"
    new = write(tmp_path, {"value": [2.0], "ward": ["a"], "client": ["h99"]}, "new.csv")
    assert invoke(["predict", str(tmp_path / "run"), "--data", new]) != 0
    assert "share no model (rows of the new client 'h99'" in capsys.readouterr().err


def test_rows_that_are_held_out_are_not_trained_on(run: Path) -> None:
    config = tables(str(run.parent / "t.parquet"))
    held = compose(check(config)).population
    config["train"] = {"rounds": 3}
    whole = compose(check(config)).population
    assert (held.sizes("train") == whole.sizes("train") - whole.sizes("train") // 5).all()
    for some, every in zip(held.train, whole.train, strict=True):
        assert set(some.tolist()) < set(every.tolist())
    assert all((a == b).all() for a, b in zip(held.test, whole.test, strict=True))


def test_without_client_and_with_missing_columns(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = predicted(run, {"value": [1.0, -1.0]}, tmp_path)
    assert [row["client"] for row in rows] == ["new", "new"]
    # Into a folder that is made, as a run's is.
    out = tmp_path / "made" / "p.csv"
    assert (
        invoke(["predict", str(run), "--data", str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    )
    assert out.read_bytes() == (tmp_path / "p.csv").read_bytes()
    said = capsys.readouterr().err
    assert "warning: new.csv: no column ward, so it is missing in every row\n" in said


def test_a_column_of_another_name_and_categories_of_another_spelling_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predicted(run, {"value": [1.0, -1.0], "station": ["a", "b"]}, tmp_path)
    said = capsys.readouterr().err
    assert "new.csv: no column ward, so it is missing in every row" in said
    assert "new.csv: columns that the run does not use: station\n" in said
    predicted(run, {"value": [1.0, -1.0, 0.5], "ward": ["A", "b", "B"]}, tmp_path)
    assert (
        "new.csv: column ward: 2 of 3 values are not known, got A, B; known: a, b"
        in capsys.readouterr().err
    )
    predicted(run, {"value": [1.0, -1.0], "ward": ["a", None]}, tmp_path)
    assert "not known" not in capsys.readouterr().err


def test_at_most_five_columns_that_the_run_does_not_use_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"value": [1.0], "ward": ["a"], "y": ["ill"], "client": ["h0"]}
    predicted(run, known, tmp_path)
    assert "does not use" not in capsys.readouterr().err
    predicted(run, known | {f"more {at}": [1] for at in range(7)}, tmp_path)
    named = ", ".join(f"more {at}" for at in range(5))
    assert f"does not use: {named} and 2 more\n" in capsys.readouterr().err


def test_the_words_for_missing_values_of_a_run_are_read_by_its_export(tmp_path: Path) -> None:
    rows = hospitals()
    rows["value"] = ["unknown" if one is None else str(one) for one in rows["value"]]
    config = tables(write(tmp_path, rows, "rows.csv"))
    config["data"]["missing"] = ["unknown"]
    run_config(check(config), tmp_path / "run")
    new = {"value": ["unknown", "1.0", "-1"], "ward": ["a", "unknown", "b"], "client": ["h0"] * 3}
    found = predicted(tmp_path / "run", new, tmp_path)
    assert invoke(["export", str(tmp_path / "run"), "--out", str(tmp_path / "export")]) == 0
    program = [sys.executable, "predict.py", str(tmp_path / "new.csv"), "e.csv"]
    subprocess.run(program, cwd=tmp_path / "export", check=True, timeout=300)
    with (tmp_path / "export" / "e.csv").open(newline="") as file:
        exported = list(csv.DictReader(file))
    assert [row["prediction"] for row in exported] == [row["prediction"] for row in found]
    empty = {**new, "value": [None, "1.0", "-1"], "ward": ["a", None, "b"]}
    assert predicted(tmp_path / "run", empty, tmp_path) == found


@pytest.mark.parametrize(
    ("new", "line"),
    [
        ({"other": [1.0]}, "none of the run's input columns (only other); expected value, ward"),
        ({"value": ["high"]}, "column value: wrong type ('high' in row 0,"),
        ({"value": [1.0], "y": ["dead"]}, "(the label 'dead'); expected one of ill, well"),
    ],
)
def test_mistakes_are_one_line(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    new: dict[str, Any],
    line: str,
) -> None:
    path = write(tmp_path, new, "new.csv")
    assert invoke(["predict", str(run), "--data", path]) != 0
    printed = [one for one in capsys.readouterr().err.splitlines() if "warning" not in one]
    assert len(printed) == 1
    assert line in printed[0]


@pytest.mark.parametrize("samples", [200, 2000])
def test_calibration_mends_probabilities_that_are_too_sure(samples: int) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=2 * samples)
    labels = (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(int)
    found = Calibrator.fit(4 * logits[:samples], labels[:samples])
    assert found is not None
    assert found.method == ("isotonic" if samples >= 1000 else "platt")
    mended = [calibrated(found.rule, logit) for logit in (4 * logits[samples:]).tolist()]
    sure = 1 / (1 + np.exp(-4 * logits[samples:]))
    truth = labels[samples:]
    assert np.square(np.array(mended) - truth).mean() < np.square(sure - truth).mean() - 0.01
    assert Calibrator.fit(logits[:15], labels[:15]) is None


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("2024-02-{:02}", "2024-02-29"),
        ("2024-02-{:02} 06:00", "2024-02-29 06:00:00"),
        ("2024-02-{:02}T06:00:00.500", "2024-02-29 06:00:00.500"),
        ("{}", "29"),
    ],
)
def test_a_forecast_has_the_form_of_its_times(days: str, expected: str, tmp_path: Path) -> None:
    lines = [f"{days.format(20 + at)},{at}" for at in range(8)]
    path = tmp_path / "days.csv"
    path.write_text("\n".join(["day,v", *lines]), encoding="utf-8")
    record = {
        "kinds": {"day": "number" if days == "{}" else "time", "v": "number"},
        "rules": None,
        "features": ["v"],
        "shape": [1],
        "client": "site",
        "labels": ["v"],
        "classes": None,
        "step": 1.0,
        "window": {"time": "day", "past": 3, "horizon": 2, "stride": 1},
    }
    assert str(read_new_rows(str(path), record).times[-1]) == expected


def test_numbers_and_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest window of each series is forecast, whatever the order of the rows."""
    from tests.data.test_series import table

    data = write(tmp_path, table())
    config = tables(data, algorithm={"name": "fedavg"}, train={"rounds": 2})
    config["data"] |= {"label": "value", "window": {"past": 4, "horizon": 2, "stride": 50}}
    config["local"]["lr"] = 0.001
    summary = run_config(check(config), tmp_path / "run")
    assert summary["naive"]["persistence"] == pytest.approx(2.0)
    assert summary["baseline"] > 10
    new = table(stations=1, hours=9)
    rows = predicted(tmp_path / "run", new, tmp_path)
    assert len(rows) == 1
    # Also where clients keep something, though no row of a forecast has a label.
    config["algorithm"] = {"name": "ditto"}
    run_config(check(config), tmp_path / "own")
    assert len(predicted(tmp_path / "own", new, tmp_path)) == 1
    assert new["value"][int(rows[0]["row"])] == 8
    # Two hours after the last row, which is of 8 o'clock.
    assert rows[0]["time"] == "2020-01-01 10:00:00"
    assert math.isfinite(float(rows[0]["prediction of value"]))
    assert "calibrated" not in capsys.readouterr().out
