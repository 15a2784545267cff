"""Folders of runs and of sweeps become pages."""

from __future__ import annotations

import json

from tests.report.pages import parse


def test_a_run_folder_becomes_a_page(tmp_path, monkeypatch, capsys):
    from pathlib import Path

    from coterie.cli.main import invoke
    from coterie.report.load import view_of

    monkeypatch.chdir(tmp_path)
    planted = '[data]\nsource = "digits"\n[data.partition]\nkind = "planted"\nclients = 8\ngroups = 2\nhow = "swap"\n'
    method = '[model]\nname = "mclr"\n[local]\nepochs = 1\n[algorithm]\nname = "fedgroup"\ngroups = 2\nalpha = 2\n'
    rest = '[train]\nrounds = 4\nclients_per_round = 8\n[engine]\nname = "serial"\n[checkpoint]\nseconds = 0\n'
    late = '[[shift]]\nkind = "arrivals"\nround = 2\ncount = 1\n[[shift]]\nkind = "swap_all"\np = 1.0\nstart = 3\n'
    Path("c.toml").write_text(planted + method + rest + late)
    assert invoke(["run", "c.toml", "--out", "r"]) == 0
    assert "groups    2 groups of 8 clients: " in (printed := capsys.readouterr().out)
    assert "agreement adjusted Rand index" in printed
    view = view_of("r")
    assert view.newcomer_ids.tolist() == [int(i) for i in arrived(view)]
    assert view.joined[view.newcomer_ids].tolist() == [2]
    assert sorted(view.planted.tolist()) == [0] * 4 + [1] * 4
    assert invoke(["report", "r", "--figures", "png"]) == 0
    assert "page: " in capsys.readouterr().out
    page = parse(Path("r/report.html"))
    every = {
        "client-mean",
        "accuracy",
        "bytes",
        "time",
        "agreement",
        "members-0",
        "map-0",
        "mix-0",
        "shift-0",
    }
    assert set(json.loads(page.scripts[0][1])) == every
    assert "fedgroup on digits (planted), mclr, seed 0." in page.text
    assert {p.stem for p in Path("png").iterdir()} == every
    assert invoke(["report", "r", "r", "--out", "both.html"]) == 0
    assert invoke(["report", "nowhere"]) == 2
    Path("r/rounds.jsonl").write_text('{"round": 0, "accuracy": 1}\n{"round": 1, "shift": 3}\n')
    assert invoke(["report", "r"]) == 4


def test_a_newcomer_that_migrates_joins_once(tmp_path):
    from coterie.experiment import check
    from coterie.report.load import view_of
    from coterie.runs.run import run_config

    planted = {"kind": "planted", "clients": 12, "groups": 3, "how": "rotate"}
    groups = {"name": "flexcfl", "groups": 3, "alpha": 3, "pretrain_steps": 10}
    tables = {
        "data": {"source": "digits", "partition": planted},
        "model": {"name": "mclr"},
        "local": {"epochs": 1},
        "train": {"rounds": 12, "clients_per_round": 6},
        "algorithm": groups,
        "engine": {"name": "serial"},
        "shift": [
            {"kind": "arrivals", "round": 4, "count": 3},
            {"kind": "swap_all", "p": 0.5, "start": 6},
        ],
    }
    run_config(check(tables), tmp_path / "run")
    view = view_of(tmp_path / "run")
    first = {}
    moved = set()
    for row in view.rounds:
        for client, _ in row["moves"]:
            moved |= {client} & set(first)
            first.setdefault(client, row["round"])
    newcomers = view.newcomer_ids.tolist()
    assert moved & set(newcomers)
    assert view.joined[newcomers].tolist() == [first[client] for client in newcomers]


def arrived(view) -> list[int]:
    return [
        c
        for row in view.rounds
        for event in row["shift"]
        if event["shift"] == "arrivals"
        for c in event["clients"]
    ]


def test_folders_of_a_sweep_become_one_page(tmp_path, capsys):
    from coterie.cli.main import invoke
    from coterie.experiment import check
    from coterie.report.load import run_folders, views_of
    from coterie.runs.run import run_config

    planted = {"kind": "planted", "clients": 8, "groups": 2, "how": "swap"}
    method = {"fedavg": {"name": "fedavg"}, "ifca": {"name": "ifca", "groups": 2}}
    for at, (name, seed) in enumerate((name, seed) for seed in (0, 1) for name in method):
        tables = {
            "seed": seed,
            "data": {"source": "digits", "partition": planted},
            "model": {"name": "mclr"},
            "local": {"epochs": 1},
            "train": {"rounds": 2, "clients_per_round": 8},
            "algorithm": method[name],
            "engine": {"name": "serial"},
        }
        run_config(check(tables), tmp_path / "sweep" / f"{at}")
    assert [
        folder.name for folder in run_folders([tmp_path / "sweep", tmp_path / "sweep" / "1"])
    ] == list("0123")
    views = views_of([tmp_path / "sweep"])
    assert [view.histograms is None for view in views] == [False, False, True, True]
    assert views[1].embedding is not None
    assert views[0].data_id == views[1].data_id != views[2].data_id
    assert invoke(["report", str(tmp_path / "sweep")]) == 0
    page = parse(tmp_path / "sweep" / "report.html")
    assert "fedavg, ifca on digits (planted), mclr, seeds 0, 1." in page.text
    assert "Configuration and versions" in page.text
    assert (
        invoke(
            [
                "plot",
                str(tmp_path / "sweep"),
                "--chart",
                "time",
                "--out",
                str(tmp_path / "time.svg"),
            ]
        )
        == 0
    )
    assert "<svg" in (tmp_path / "time.svg").read_text()
    assert invoke(["report", str(tmp_path)]) == 2
    assert "not a run folder" in capsys.readouterr().err
