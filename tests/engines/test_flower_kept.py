"""What stays with a client of a federation: it is that of the serial engine, is in a file of the node,
in no message, and survives whatever ends a process."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from safetensors.numpy import load_file

from coterie.cli.main import invoke
from coterie.core.keep import Keep, KeptState
from coterie.core.vectors import Layout
from coterie.data.sources.files import DataForm
from coterie.engines.flower.messages import NOTE
from coterie.errors import ConfigError, DataError
from coterie.experiment import check
from coterie.export import export_run
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.kept import KEPT_FILE, KeptFile, KeptRounds
from coterie.flower.node.cache import cache_root
from coterie.runs.folder.store import RunFolder
from coterie.runs.progress import OWN_MODELS, kept_state
from coterie.runs.run import Run, run_config
from tests.engines.fake_grid import FakeGrid, as_deployed, parts_of
from tests.engines.test_flower import SETTINGS, Reported, deploy, groups, models, nodes, tables

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
FOUR = {"clients": 4, "min_clients": 4}
ONE_LAYER = {"personal": {"layers": ["1.bias"]}}
ADAM = {"epochs": 1, "batch_size": 40, "lr": 0.01, "optimizer": "adam", "keep_state": True}


def four(name: str, rounds: int = 2, model: str = "mclr", **more: Any) -> dict[str, Any]:
    """The configuration of a run of four clients; ``options`` are those of the algorithm."""
    config = tables(name, rounds, 4, **more.pop("options", {}))
    config["train"]["clients_per_round"] = 4
    config["model"] = {"name": model}
    return config | more


RUNS: Mapping[str, dict[str, Any]] = {
    "fedper": four("fedper", model="mlp"),
    "fedrep": four("fedrep", model="mlp"),
    "local": four("local"),
    "flexcfl-bias": four(
        "flexcfl", options={"alpha": 1, "inter_group_rule": "normalized_model"}, **ONE_LAYER
    ),
    "ifca-bias": four("ifca", **ONE_LAYER),
    "ditto": four("ditto"),
    "apfl": four("apfl"),
    "perfedavg": four("perfedavg"),
    "fedrod": four("fedrod"),
    "scaffold": four("scaffold"),
    "ifca-ditto": four("ifca", own_model={"name": "ditto"}),
    "fedrc": four("fedrc"),
    "fedavg-state": four("fedavg", local=ADAM),
    "local-state": four("local", local=ADAM),
    "fedper-state": four("fedper", model="mlp", local=ADAM),
}
WHAT_SCORES = ("accuracy", "accuracy_all", "accuracy_mean", "accuracy_groups")


def spec_of(config: Mapping[str, Any]) -> FederationSpec:
    return FederationSpec.of(check(config), DataForm((1, 8, 8), tuple(SETTINGS["classes"])), 8)


def kept_files(folder: Path, config: Mapping[str, Any]) -> dict[str, KeptFile]:
    """The file of each client that keeps something, by the client's name."""
    keep = spec_of(config).kept
    found = {}
    for name in (f"client-{client:02d}" for client in range(6)):
        for path in cache_root({"cache": folder / "cache"}, name).glob(f"run-*/{KEPT_FILE}"):
            assert keep is not None
            found[name] = KeptFile(path, path.parent.name.removeprefix("run-"), keep)
    return found


def kept_here(run: Path) -> KeptState:
    """What the clients of a simulation keep at its end."""
    checkpoint = RunFolder(run).checkpoints.latest()
    assert checkpoint is not None
    parts = kept_state(checkpoint.extra)
    own = kept_state(checkpoint.extra, OWN_MODELS)
    if not len(parts.ids):
        return own
    if len(own.ids):
        # In a client's file the one behind the other.
        return replace(parts, vectors=np.concatenate([parts.vectors, own.vectors], axis=1))
    return parts


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RUNS)
def test_what_stays_is_that_of_the_serial_engine_and_in_no_message(
    name: str, tmp_path: Path
) -> None:
    config = RUNS[name]
    grid = nodes(tmp_path, config, 4)
    reported = deploy(tmp_path, config, grid, **FOUR)
    run_config(check(as_deployed(config)), tmp_path / "here")
    assert not reported.refused
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))
    assert groups(tmp_path / "run") == groups(tmp_path / "here")
    for one, other in zip(
        RunFolder(tmp_path / "run").rows(), RunFolder(tmp_path / "here").rows(), strict=True
    ):
        assert [one[what] for what in WHAT_SCORES] == [other[what] for what in WHAT_SCORES]
        # Newcomers of FlexCFL choose their group by themselves, where a simulation has the server do it.
        assert one["transfers"] == other["transfers"] or name == "flexcfl-bias"
    kept = kept_here(tmp_path / "here")
    files = kept_files(tmp_path, config)
    assert len(files) == len(kept.ids) == (0 if name in ("perfedavg", "fedrc") else 4)
    for file, vector in zip(files.values(), kept.vectors, strict=True):
        assert np.array_equal(file.read("").vectors[-1], vector)
        assert file.path.stat().st_mode & 0o777 == 0o600
        assert_unsent(grid, file.read("").vectors)
    assert_sizes(grid, config)


def assert_unsent(grid: FakeGrid, vectors: np.ndarray) -> None:
    """No message has any run of values that a client keeps."""
    sent = [
        b"".join(array.data for array in record.values())
        for message in (*grid.sent, *grid.replied)
        for record in message.content.array_records.values()
    ]
    for vector in vectors:
        # Zeros are everywhere: a client's pixels that are always black leave weights as they were.
        parts = [part for part in np.array_split(vector, 1 + len(vector) // 10) if part.all()]
        assert parts
        assert not any(part.tobytes() in data for part in parts for data in sent)
    assert_words(grid, vectors)


def assert_words(grid: FakeGrid, vectors: np.ndarray) -> None:
    """Beside arrays a message has words and numbers, and none of them is a value that a client
    keeps."""
    # An optimiser counts its steps, and numbers of clients and rounds are whole, too.
    values = {float(value) for value in vectors.ravel() if not (2 * value).is_integer()}
    written = {repr(value) for value in values} | {str(np.float32(value)) for value in values}
    for message in (*grid.sent, *grid.replied):
        assert not message.content.metric_records
        for note in message.content.config_records.values():
            for said in note.values():
                # Neither bytes nor lists, in which a vector could lie.
                assert isinstance(said, str | int | float | bool)
                assert said not in values
                assert not written & set(NUMBER.findall(str(said)))


def test_a_value_in_the_words_of_a_message_is_seen(tmp_path: Path) -> None:
    config = RUNS["ditto"]
    grid = nodes(tmp_path, config, 4)
    deploy(tmp_path, config, grid, **FOUR)
    (vectors, *_) = [one.read("").vectors for one in kept_files(tmp_path, config).values()]
    value = float(vectors[vectors != 0][0])
    note = grid.replied[-1].content.config_records[NOTE]
    for leak in (value, f"theta is {value}", [value], np.float32(value).tobytes()):
        note["drifted"] = leak
        with pytest.raises(AssertionError):
            assert_words(grid, vectors)


def assert_sizes(grid: FakeGrid, config: Mapping[str, Any]) -> None:
    """Every model and every update that travels is as long as what is shared."""
    spec = spec_of(config)
    shared = spec.local.shared_size(Layout.of(spec.network.module).d)
    for message in grid.sent:
        for name, record in message.content.array_records.items():
            assert name.startswith("shares") or record["w"].numpy().shape == (shared,)
    for message in grid.replied:
        for _, fields in parts_of(message):
            if "delta" in fields:
                assert fields["delta"].shape[-1] == shared


def test_an_export_lacks_what_stays_on_nodes_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = four("fedavg", 1, **ONE_LAYER)
    deploy(tmp_path, config, nodes(tmp_path, config, 4), **FOUR)
    capsys.readouterr()
    assert invoke(["export", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "only the shared models: clients keep their own layers" in said
    assert "`coterie node export NAME` on the client's own machine" in said
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "**These are the shared models.**" in card
    # Nodes score the model that serves them, with what they keep in it.
    assert "each with the model that serves it, their own layers among it" in card
    with refuses(ConfigError, "does-not-fit", "--client"):
        export_run(tmp_path / "run", client="client-01")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("ifca-bias", ["1.bias"]),
        ("apfl", ["v/1.weight", "v/1.bias", "alpha"]),
        ("local-state", ["1.weight", "1.bias", "optimizer"]),
    ],
)
def test_a_client_takes_away_what_is_its_own(name: str, names: list[str], tmp_path: Path) -> None:
    config = RUNS[name]
    deploy(tmp_path, config, nodes(tmp_path, config, 4), **FOUR)
    out = tmp_path / "own.safetensors"
    command = [
        "node",
        "export",
        "client-01",
        "--out",
        str(out),
        "--cache",
        str(tmp_path / "cache"),
    ]
    assert invoke(command) == 0
    found = load_file(out)
    vector = kept_files(tmp_path, config)["client-01"].read("").vectors[-1]
    assert sorted(found) == sorted(names)
    assert np.array_equal(np.concatenate([found[one].ravel() for one in names]), vector)
    assert out.stat().st_mode & 0o777 == 0o600
    assert invoke(command) == 2
    out.unlink()
    assert invoke([*command[:2], "client-09", *command[3:]]) == 2


def test_a_client_is_told_its_own_shares_alone(tmp_path: Path) -> None:
    config = four("fedem")
    grid = nodes(tmp_path, config, 4)
    deploy(tmp_path, config, grid, **FOUR)
    told = [
        record["shares"].numpy()
        for message in grid.sent
        for name, record in message.content.array_records.items()
        if name.startswith("shares")
    ]
    assert len(told) == 16  # four clients train and are scored in two rounds
    assert all(shares.shape == (3,) and np.isclose(shares.sum(), 1) for shares in told)


@pytest.mark.parametrize("name", ["ditto", "ifca-bias", "fedper-state"])
def test_a_server_that_was_killed_finds_what_clients_had_at_its_checkpoint(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RUNS[name] | {"train": {"rounds": 3, "clients_per_round": 4}}
    grid = nodes(tmp_path, config, 4)
    save = Run.save

    def killed(run: Run, keep: int, *, with_snapshot: bool = True) -> None:
        # After the clients trained in this round, and before its checkpoint.
        if run.progress.round == 2:
            raise KeyboardInterrupt
        save(run, keep, with_snapshot=with_snapshot)

    monkeypatch.setattr(Run, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        deploy(tmp_path, config, grid, **FOUR)
    monkeypatch.undo()
    deploy(tmp_path, config, grid, resume=True, **FOUR)
    deploy(tmp_path / "b", config, nodes(tmp_path / "b", config, 4), **FOUR)
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "b" / "run"))
    rows = [RunFolder(folder / "run").rows() for folder in (tmp_path, tmp_path / "b")]
    assert [row["accuracy"] for row in rows[0]] == [row["accuracy"] for row in rows[1]]
    straight = kept_files(tmp_path / "b", config)
    for client, file in kept_files(tmp_path, config).items():
        assert np.array_equal(file.read("").vectors, straight[client].read("").vectors)


def test_a_client_says_that_a_restored_server_is_older_than_what_it_keeps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It began anew without a word, and the rounds that were done again had other results."""
    config = RUNS["ditto"] | {"train": {"rounds": 5, "clients_per_round": 4}}
    grid = nodes(tmp_path, config, 4)

    class Backup(Reported):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] in (0, 2):
                shutil.copytree(tmp_path / "run", tmp_path / f"backup-{value['round']}")

    deploy(tmp_path, config, grid, reported=Backup(), **FOUR)
    logging.getLogger("flwr").propagate = True
    for backup, silent in ((2, True), (0, False)):
        shutil.rmtree(tmp_path / "run")
        shutil.move(tmp_path / f"backup-{backup}", tmp_path / "run")
        caplog.clear()
        deploy(tmp_path, config, grid, resume=True, **FOUR)
        lines = [one.getMessage() for one in caplog.records if one.name == "flwr"]
        told = [line for line in lines if line.endswith("it starts again from initial values")]
        assert len(told) == (0 if silent else 4)


def test_a_damaged_file_is_refused_in_one_line_and_its_client_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = RUNS["ditto"]
    grid = nodes(tmp_path, config, 4)

    class Damage(Reported):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] == 0:
                path = kept_files(tmp_path, config)["client-02"].path
                data = bytearray(path.read_bytes())
                data[-1] ^= 1
                path.write_bytes(data)

    logging.getLogger("flwr").propagate = True
    reported = Damage()
    deploy(tmp_path, config, grid, reported=reported, **FOUR)
    lines = [one.getMessage() for one in caplog.records if one.name == "flwr"]
    (line,) = [one for one in lines if not one.startswith("coterie: round")]
    assert "damaged, got other values" in line
    assert line.endswith("this client starts again from initial values")
    assert "\n" not in line
    assert not reported.refused
    rounds = {name: file.read("").rounds for name, file in kept_files(tmp_path, config).items()}
    assert rounds.pop("client-02").tolist() == [1]
    assert all(one.tolist() == [0, 1] for one in rounds.values())


def test_a_file_of_another_run_or_shape_is_none_of_this_one(tmp_path: Path) -> None:
    keep = Keep(((2, 4),))
    file = KeptFile(tmp_path / KEPT_FILE, "a", keep)
    assert not len(file.read("one").rounds)
    kept = KeptRounds.none("one", 2).after(3, np.array([1, 2], np.float32), most=2)
    file.write(kept)
    assert file.read("two").vectors.tolist() == [[1.0, 2.0]]
    for other in (
        KeptFile(file.path, "b", keep),
        KeptFile(file.path, "a", Keep(((2, 5),))),
        KeptFile(file.path, "a", Keep(((1, 3),))),
    ):
        with refuses(DataError, "differs", "kept.safetensors"):
            other.read("one")
    file.path.write_bytes(b"\x08")
    with refuses(DataError, "cannot-be-read", "kept.safetensors"):
        file.read("one")
