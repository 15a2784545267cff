"""Advice on planted federations, by the command, and the steps that lead to it."""

from __future__ import annotations

import csv
import json
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from coterie.cli.main import invoke
from coterie.core.keys import Key
from coterie.data.from_python import load as load_population
from coterie.experiment import check, load_config
from coterie.headline import ACCURACY
from coterie.measures.gains import Gain
from coterie.runs.fitting import make_method
from coterie.runs.held_out import on_validation
from coterie.studies.advise.answer import WORDS, method_scores, probe_text
from coterie.studies.advise.configuration import short_toml
from coterie.studies.advise.probe import ProbeResult
from coterie.studies.advise.trials import HELD_OUT, Trial, gain, recommend, with_algorithm

CONFIG = """
[data]
source = "digits"
[data.partition]
kind = "planted"
clients = 40
groups = {groups}
how = "{how}"
[model]
name = "mclr"
[local]
epochs = 3
lr = 0.1
[train]
rounds = 30
clients_per_round = 8
[algorithm]
name = "fedprox"
[engine]
name = "serial"
"""
QUICK = ("--rounds", "6", "--seeds", "1", "--methods", "fedgroup")


def advise_on(folder: Path, *arguments: str) -> dict[str, Any]:
    assert invoke(["advise", *arguments, "--out", str(folder / "out")]) == 0
    found: dict[str, Any] = json.loads((folder / "out" / "advise.json").read_text())
    return found


@pytest.mark.parametrize(("how", "groups"), [("rotate", 3), ("labels", 3), ("rotate", 1)])
def test_planted_groups_are_found_and_none_are_invented(tmp_path, capsys, how, groups):
    (tmp_path / "c.toml").write_text(CONFIG.format(how=how, groups=groups))
    found = advise_on(tmp_path, str(tmp_path / "c.toml"), *QUICK)
    printed = capsys.readouterr().out
    text = (tmp_path / "out" / "advise.md").read_text()
    assert found["headline"] in printed
    assert text.startswith(f"# {found['headline']}")
    assert found["groups_found"] == groups
    assert found["probe"]["rounds"] == 6
    suggested = load_config(tmp_path / "out" / "suggested.toml")
    assert suggested.algorithm.name == found["recommended"]
    assert suggested.train.rounds == 30
    with (tmp_path / "out" / "clients.csv").open(newline="") as file:
        members = [row["group"] for row in csv.DictReader(file)]
    assert len(members) == 40
    assert sum(len(group["clients"]) for group in found["groups"]) == 40
    if groups == 1:
        assert found["verdict"] in ("does not help", "not shown")
        assert found["recommended"] == found["bar"].split(",")[0]
        assert set(members) == {"0"}
        return
    assert found["verdict"] == "helps"
    best = found["methods"][found["recommended"]]
    assert best["gain"]["mean"] - best["gain"]["half"] > 0
    assert best["cost"]["bytes"] > 0.5 * found["methods"]["fedavg"]["cost"]["bytes"] > 0
    planted = load_population(
        "digits", partition={"kind": "planted", "clients": 40, "groups": 3, "how": how}
    ).planted
    pairs = {(int(a), b) for a, b in zip(planted, members, strict=True)}
    assert len(pairs) == 3  # the same groups, whatever they are called
    words = "have different classes" if how == "labels" else "different inputs"
    assert any(words in line for line in found["evidence"])


def test_a_bare_file_is_enough_and_what_is_suggested_runs(tmp_path, capsys):
    import pandas as pd

    found = load_population(
        "digits", partition={"kind": "planted", "clients": 24, "groups": 2, "how": "rotate"}
    )
    rows = [
        {
            "site": f"site {i}",
            "label": f"digit {int(found.y[r])}",
            "image": found.x[r].flatten().tolist(),
        }
        for i in range(24)
        for r in (*found.train[i], *found.test[i])
    ]
    pd.DataFrame(rows).sample(frac=1, random_state=0).to_parquet(tmp_path / "mine.parquet")
    advice = advise_on(
        tmp_path,
        str(tmp_path / "mine.parquet"),
        "--rounds",
        "6",
        "--seeds",
        "1",
        "--methods",
        "fedgroup",
        "--engine",
        "serial",
    )
    assert advice["verdict"] == "helps"
    assert advice["groups_found"] == 2
    assert len(advice["learning_rates"]) == 5
    printed = capsys.readouterr().out
    assert "next: coterie run" in printed
    # Whole runs are compared with the number of groups that was found.
    command = shlex.split(printed.partition("compare whole runs: coterie ")[2].splitlines()[0])
    quick = ["--seeds", "0", "--set", "train.rounds=2", "--out", str(tmp_path / "compared")]
    assert invoke([*command, *quick]) == 0
    configs = [tomllib.loads(file.read_text()) for file in tmp_path.glob("compared/*/config.toml")]
    groups = {one["algorithm"]["name"]: one["algorithm"].get("groups") for one in configs}
    assert groups == {"fedavg": None, "local": None, "fedgroup": 2}
    suggested = str(tmp_path / "out" / "suggested.toml")
    assert (
        invoke(["run", suggested, "--set", "train.rounds=2", "--out", str(tmp_path / "run")]) == 0
    )


def test_what_cannot_be_advised_on_is_refused_in_a_line(tmp_path, capsys):
    import pandas as pd

    bare = tmp_path / "bare.parquet"
    odd = tmp_path / "odd.parquet"
    config = tmp_path / "c.toml"
    pd.DataFrame({"x0": [1.0, 2.0], "y": [0, 1]}).to_parquet(bare)
    odd.write_bytes(b"PAR1 no parquet")
    config.write_text(CONFIG.format(how="rotate", groups=2).replace("clients = 40", "clients = 3"))
    few = ("--set", "train.clients_per_round=2")
    for arguments, code, words in (
        (
            [str(bare)],
            2,
            "--client: no column has one of the usual names (x0, y); expected --client COLUMN",
        ),
        ([str(bare), "--client", "who"], 3, "no column 'who'"),
        ([str(odd)], 3, "cannot be read as parquet"),
        ([str(tmp_path / "none.parquet")], 3, "no such file"),
        ([str(config), *few, "--methods", "kmeans"], 2, "--methods: unknown choice, got 'kmeans'"),
        ([str(config), *few], 2, "advise: too few clients"),
        ([str(config), *few, "--out", str(bare)], 2, "--out: cannot be written"),
    ):
        assert (
            invoke(
                [
                    "advise",
                    *arguments,
                    *(() if "--out" in arguments else ("--out", str(tmp_path / "o"))),
                ]
            )
            == code
        )
        error = capsys.readouterr().err
        assert words in error
        assert "Traceback" not in error


def trial(
    name: str, accuracy: float, groups: int = 2, moved: int = 100, clients: int = 50
) -> Trial:
    size = np.full(clients, 10.0)
    rng = np.random.default_rng(len(name))
    correct = np.clip(10 * accuracy + rng.normal(size=(3, clients)) / 10, 0, 10)
    row = {
        "transfers": {"down_bytes": moved, "up_bytes": moved},
        "seconds": {"total": 1.0, "evaluation": 0.5},
    }
    sums = {"correct": correct, "size": np.tile(size, (3, 1))}
    return Trial(name, {}, sums, np.arange(clients) % groups, [row] * 3)


@pytest.mark.parametrize(
    ("accuracies", "moved", "expected"),
    [
        ({"fedgroup": 0.9, "ifca": 0.9}, {"fedgroup": 100, "ifca": 300}, "fedgroup"),
        ({"fedgroup": 0.7, "ifca": 0.9}, {"fedgroup": 100, "ifca": 300}, "ifca"),
        ({"fedgroup": 0.5, "ifca": 0.4}, {}, None),
        ({"fedgroup": 0.5, "ifca": 0.7}, {}, "ifca"),
    ],
)
def test_the_cheapest_of_those_that_help_most_is_recommended(accuracies, moved, expected):
    base = trial("fedavg", 0.5, 1)
    trials = {name: trial(name, a, moved=moved.get(name, 100)) for name, a in accuracies.items()}
    gains = {name: gain(one, base) for name, one in trials.items()}
    assert recommend(trials, gains) == expected


def test_flexcfl_is_recommended_where_data_shift():
    trials = {name: trial("same", 0.9) for name in ("fedgroup", "flexcfl")}
    gains = {name: Gain(0.4, 0.01, 40, 0, 40, 3, ACCURACY) for name in trials}
    assert recommend(trials, gains) == "fedgroup"
    assert recommend(trials, gains, shifting=True) == "flexcfl"


def test_a_trial_has_the_groups_of_most_seeds():
    one = trial("ifca", 0.9, groups=2)
    assert one.groups == 2
    assert [replace(one, ended=ended).groups for ended in ((2, 1, 1), (1, 2, 2))] == [1, 2]


def test_a_gain_that_may_be_chance_is_none():
    rng = np.random.default_rng(0)
    size = np.full((3, 40), 5.0)
    none = np.zeros(40, np.int64)
    one, other = (
        Trial("x", {}, {"correct": rng.binomial(5, 0.5, (3, 40)) * 1.0, "size": size}, none, ())
        for _ in range(2)
    )
    found = gain(one, other)
    assert abs(found.mean) < found.half


def test_samples_held_out_are_training_samples_that_no_client_trains_on():
    whole = load_population("digits", partition={"kind": "iid", "clients": 10})
    part = on_validation(whole, HELD_OUT, Key(0))
    for before, train, test in zip(whole.train, part.train, part.test, strict=True):
        assert sorted([*train, *test]) == sorted(before)
        assert 0.15 < len(test) / len(before) < 0.25


def test_costs_are_those_of_the_rounds_and_the_cohort_suggested():
    one = trial("fedavg", 0.5)
    first = {
        "transfers": {"down_bytes": 500, "up_bytes": 100},
        "seconds": {"total": 3.0, "evaluation": 0.5},
    }
    probed = Trial("fedgroup", {}, one.sums, one.member, [first, *one.rows, *one.rows])
    assert probed.cost(7)["bytes"] == 600 + 6 * 200
    assert probed.cost(100, 0.5) == {"bytes": 400 + 50 * 200, "seconds": 2.0 + 50 * 0.5}


def test_a_learning_rate_set_by_the_user_leaves_the_cohort_to_advice(tmp_path):
    import pandas as pd

    found = load_population("digits", partition={"kind": "iid", "clients": 5})
    rows = [
        {"site": i, "label": int(found.y[r]), "image": found.x[r].flatten().tolist()}
        for i in range(5)
        for r in found.train[i][:20]
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "mine.parquet")
    advise_on(
        tmp_path,
        str(tmp_path / "mine.parquet"),
        "--set",
        "local.lr=0.1",
        "--rounds",
        "2",
        "--seeds",
        "1",
        "--methods",
        "fedgroup",
        "--engine",
        "serial",
    )
    assert load_config(tmp_path / "out" / "suggested.toml").train.clients_per_round == 5


@pytest.mark.parametrize("migration", ["", '[migration]\ndetector = "counts"\n'])
def test_a_configuration_with_migration_is_tried_without_it(tmp_path: Path, migration: str) -> None:
    """FedAvg, which every method is compared with, has no groups between which clients migrate."""
    text = CONFIG.format(how="rotate", groups=3).replace("fedprox", "flexcfl")
    (tmp_path / "c.toml").write_text(text + migration)
    config = load_config(tmp_path / "c.toml")
    assert config.migration is not None
    plain = with_algorithm(config, "fedavg", {})
    assert plain.migration is None
    make_method(plain)
    detectors = [with_algorithm(config, name, {}).migration for name in ("fedgroup", "flexcfl")]
    assert detectors[0] is None
    assert detectors[1] is not None
    assert detectors[1].detector == "per_label"


def test_newer_methods_are_tried_where_they_are_named(tmp_path: Path) -> None:
    """And what is suggested of one of them is a configuration that can be run."""
    (tmp_path / "run.toml").write_text(CONFIG.format(groups=3, how="rotate"))
    few = ("--rounds", "8", "--seeds", "1", "--methods", "clove,cornflqs")
    found = advise_on(tmp_path, str(tmp_path / "run.toml"), *few)
    tried = found["methods"]
    assert tried["clove"]["options"] == tried["cornflqs"]["options"] == {"groups": 3}
    assert found["recommended"] == "cornflqs"
    suggested = load_config(tmp_path / "out" / "suggested.toml").resolved()
    assert suggested["algorithm"]["name"] == "cornflqs"
    assert suggested["algorithm"]["groups"] == 3


def test_an_earlier_answer_is_not_written_over(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(CONFIG.format(how="labels", groups=1))
    assert invoke(["advise", "missing.toml", *QUICK]) == 2
    assert not (tmp_path / "runs").exists()
    assert invoke(["advise", "c.toml", *QUICK, "--methods", "none"]) == 2
    assert not any((tmp_path / "runs").iterdir())
    assert invoke(["advise", "c.toml", *QUICK]) == 0
    first, second = (tmp_path / "runs" / f"advise-{n}" for n in (1, 2))
    (first / "suggested.toml").write_text("mine")
    assert invoke(["advise", "c.toml", *QUICK]) == 0
    assert (first / "suggested.toml").read_text() == "mine"
    assert len(list(second.iterdir())) == 4


def patients(clients: int = 16, rows: int = 30) -> dict[str, Any]:
    """A table of two kinds of hospitals, in which the same values mean the opposite."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=clients * rows)
    hospital = np.repeat(np.arange(clients), rows)
    dose = np.where(hospital % 2, -1, 1) * value
    return {
        "Hospital": [f"h{one}" for one in hospital],
        "value": 1000 * value,
        "ward": rng.choice(["a", "b"], len(value)),
        "patient name": [f"name {at}" for at in range(len(value))],
        "dose": dose + 0.1 * rng.normal(size=len(value)),
        "ill": np.where(dose > 0, "yes", "no"),
    }


@pytest.mark.parametrize(
    ("label", "others", "headline", "better"),
    [("dose", "ill", "mae", "lower"), ("ill", "dose", "auroc", "higher")],
)
def test_a_table_of_numbers_and_one_of_yes_and_no(
    label, others, headline, better, tmp_path, capsys
):
    """The headline and its direction are those of the task; what was guessed is said."""
    import pandas as pd

    table = {name: values for name, values in patients().items() if name != others}
    pd.DataFrame(table).to_csv(tmp_path / "mine.csv", index=False)
    given = [str(tmp_path / "mine.csv"), "--label", label, "--engine", "serial", *QUICK]
    advice = advise_on(tmp_path, *given)
    printed = capsys.readouterr().out
    two_values = "the labels have two values, so this is a binary task, measured by AUROC"
    assert (two_values in printed) == (label == "ill")
    assert (
        "client: the column Hospital, chosen by its name; use --client to select a different one"
        in printed
    )
    assert "features: value, ward\n" in printed
    assert "left out: patient name (text with 480 different values)" in printed
    assert (advice["measured_by"]["name"], advice["measured_by"]["better"]) == (headline, better)
    ours = advice["methods"]["fedgroup"]
    plain = advice["methods"]["fedavg"][headline]
    assert (ours[headline] < plain) == (better == "lower")
    # One column decides, which every hospital learns alone: far better than FedAvg is not enough.
    assert advice["bar"] == "local"
    assert advice["verdict"] != "helps"
    if better == "lower":
        alone = advice["methods"]["local"][headline]
        assert ours["gain"]["mean"] == pytest.approx(alone - ours[headline])
    assert "ccuracy" not in (tmp_path / "out" / "advise.md").read_text()
    assert load_config(tmp_path / "out" / "suggested.toml").task.kind in ("regression", "binary")


def test_labels_of_two_values_are_measured_as_the_user_says(tmp_path, capsys) -> None:
    """A configuration is advised on as `run` takes it, and a line says how to have a binary task."""
    import pandas as pd

    table = {name: values for name, values in patients().items() if name != "dose"}
    pd.DataFrame(table).to_csv(tmp_path / "mine.csv", index=False)
    few = ["--engine", "serial", "--rounds", "2", "--seeds", "1", "--methods", "ifca"]
    bare = [str(tmp_path / "mine.csv"), "--label", "ill", "--set", "task.kind=classification"]
    advice = advise_on(tmp_path, *bare, *few)
    assert advice["measured_by"]["name"] == "accuracy"
    assert "two values" not in capsys.readouterr().out
    suggested = tmp_path / "out" / "suggested.toml"
    tables = tomllib.loads(suggested.read_text())
    assert tables["task"] == {"kind": "classification"}
    del tables["task"]
    configured = tmp_path / "mine.toml"
    configured.write_text(tomli_w.dumps(tables))
    again = advise_on(tmp_path / "again", str(configured), *few)
    line = "without [task] accuracy is measured; --set task.kind=binary also measures AUROC"
    assert line in capsys.readouterr().out
    assert again["measured_by"]["name"] == "accuracy"


def test_what_is_suggested_for_fewer_clients_than_the_default_cohort_runs(tmp_path):
    import pandas as pd

    pd.DataFrame(patients(clients=12)).to_csv(tmp_path / "mine.csv", index=False)
    (tmp_path / "c.toml").write_text(
        f"""
[data]
source = "file"
path = "{tmp_path / "mine.csv"}"
features = ["value", "dose"]
label = "ill"
client = "Hospital"
[data.partition]
kind = "natural"
test_fraction = 0.25
[task]
kind = "binary"
[model]
name = "mclr"
[train]
rounds = 3
[algorithm]
name = "fedavg"
[engine]
name = "serial"
"""
    )
    advise_on(tmp_path, str(tmp_path / "c.toml"), *QUICK)
    suggested = tmp_path / "out" / "suggested.toml"
    # All of them, as a run of the configuration has.
    assert load_config(suggested).train.clients_per_round == 12
    assert invoke(["run", str(suggested), "--out", str(tmp_path / "run")]) == 0


# --- few clients, and what is suggested -------------------------------------------------------------


@pytest.mark.parametrize("example", ["digits", "digits-shift", "heart-disease", "cifar10"])
def test_a_short_configuration_is_the_same_one(example: str) -> None:
    config = load_config(Path("examples") / f"{example}.toml")
    text = short_toml(config)
    assert check(tomllib.loads(text)).resolved() == config.resolved()
    assert len(text.splitlines()) < len(config.toml().splitlines()) / 2
    local = tomllib.loads(text)["local"]
    assert {"epochs", "batch_size", "lr"} <= set(local)


def test_it_says_when_clients_do_better_alone(tmp_path, capsys):
    """Ten clients, each of which names the digits in its own way: no two have a model in common."""
    text = CONFIG.format(groups=10, how="swap").replace("clients = 40", "clients = 10")
    (tmp_path / "c.toml").write_text(text)
    found = advise_on(tmp_path, str(tmp_path / "c.toml"), *QUICK)
    alone = found["methods"]["local"]["accuracy"]
    assert alone > found["methods"]["fedavg"]["accuracy"]
    assert (found["bar"], found["recommended"], found["verdict"]) == (
        "local",
        "local",
        "does not help",
    )
    assert load_config(tmp_path / "out" / "suggested.toml").algorithm.name == "local"
    assert "local is the better of FedAvg and training alone" in capsys.readouterr().out


@pytest.mark.parametrize("kind", list(WORDS))
def test_the_scoreboard_has_a_record_of_every_kind(kind):
    found = method_scores(kind)
    assert found.federations > 0
    assert {"fedavg", "local", "ifca"} < set(found.scores)
    assert "known_groups" not in found.scores
    scores = list(found.scores.values())
    assert scores == sorted(scores, reverse=True)
    assert f"over {found.federations} federation" in found.text


def test_it_says_where_no_method_of_the_scoreboard_is_clearly_better() -> None:
    alike = method_scores("nothing")
    # A tenth of a point above FedAvg, which other seeds turn around.
    assert next(iter(alike.scores)) != "fedavg"
    assert not alike.is_better
    assert alike.text.endswith("No method is clearly better than fedavg there.")
    turned = method_scores("inputs")
    assert turned.is_better
    assert "clearly" not in turned.text


def test_the_number_of_groups_is_the_one_that_most_samples_of_clients_show() -> None:
    member = np.zeros(10, np.int64)
    certain = ProbeResult(np.arange(10), 3, (3, 3, 4, 3, 3), member, np.full(10, np.nan))
    assert "not certain" not in probe_text(certain)
    assert "not certain" in probe_text(replace(certain, groups_in_parts=(4, 5, 3, 6, 3)))


def test_it_names_predictions_without_a_model_that_are_better(tmp_path: Path) -> None:
    """Steps so small that nothing is learned; each client has some classes more often."""
    text = CONFIG.format(how="labels", groups=2).replace("lr = 0.1", "lr = 1e-6")
    (tmp_path / "c.toml").write_text(text)
    found = advise_on(tmp_path, str(tmp_path / "c.toml"), *QUICK)
    assert "needs no model" in found["headline"]


def test_a_column_that_gives_the_label_away_is_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    lines = ["client,value,copy,label"]
    for row in range(240):
        label = int(rng.integers(2))
        lines.append(f"site {row % 8},{rng.normal():.3f},{label},{'ill' if label else 'well'}")
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    advise_on(tmp_path, str(tmp_path / "mine.csv"), "--engine", "serial", *QUICK)
    assert capsys.readouterr().err.count("column copy: determines label") == 1


@pytest.mark.parametrize(("noise", "said"), [(0.0, False), (0.9, True)])
def test_it_says_where_nothing_is_learned(tmp_path, noise: float, said: bool) -> None:
    config = CONFIG.format(how="swap", groups=1).replace("[model]", f"noise = {noise}\n[model]")
    (tmp_path / "c.toml").write_text(config)
    found = advise_on(tmp_path, str(tmp_path / "c.toml"), *QUICK)
    assert any("Nothing was learned" in line for line in found["evidence"]) == said
