"""The engine over Flower's grid, without Flower's processes: equal to the simulation, whatever
happens on the way."""

from __future__ import annotations

import csv
import json
import re
import runpy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch

from tests.conftest import PATIENCE
from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from importlib.metadata import version

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from safetensors.torch import load_file

from coterie.algorithms import ALGORITHMS
from coterie.clients.clients import Clients
from coterie.clients.identity import Identity, signature
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Train
from coterie.data.sources.files import DataForm
from coterie.engines import SerialEngine
from coterie.engines.flower import FlowerEngine, Terms
from coterie.engines.flower.messages import FIELDS, FLOWER_ERRORS, NOTE, part_name
from coterie.errors import CheckpointError, Code, ConfigError, QuorumError
from coterie.experiment import check
from coterie.export import export_run
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.server.serve import serve
from coterie.local import LocalRunner
from coterie.report.load import view_of
from coterie.runs.compose import compose
from coterie.runs.data import load_data
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.docs.pages import ROOT, method_tables
from tests.engines.fake_grid import FakeGrid, Meddle, as_deployed, contexts, parts_of

METHODS: Mapping[str, dict[str, Any]] = {
    "fedavg": {},
    "fedgroup": {"groups": 2, "alpha": 2},
    "flexcfl": {"groups": 2, "alpha": 2, "eta_g": 0.1},
    "ifca": {"groups": 2},
    "fedclust": {},
    "flux": {"warmup_rounds": 1},
    "feroma": {"warmup_rounds": 0},
    "fedgsp": {"beta": 2},
    "rfedavg": {"l_star": 0.5},
}
SETTINGS = {
    "clients": 6,
    "shape": [1, 8, 8],
    "classes": [str(c) for c in range(10)],
    "min_clients": 6,
    "longest_wait": 5.0,
    "reply_wait": 2.0,
    "most_samples": 1e6,
}


def tables(
    name: str = "fedavg", rounds: int = 2, clients: int = 6, **options: Any
) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {
            "source": "digits",
            "partition": {"kind": "planted", "clients": clients, "groups": 2},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "batch_size": 40, "lr": 0.1},
        "engine": {"name": "serial"},
        "train": {"rounds": rounds, "clients_per_round": 6},
        "algorithm": {"name": name, **METHODS.get(name, {}), **options},
    }


class Reported:
    """What the server reported."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.lines: list[str] = []

    def __call__(self, what: str, value: Any) -> None:
        if what == "round":
            self.rows.append(value)
        if what == "say":
            self.lines.append(value)

    @property
    def refused(self) -> Counter[str]:
        return sum((Counter(row["refused"]) for row in self.rows), Counter())


def deploy(
    folder: Path,
    config: Mapping[str, Any],
    grid: FakeGrid | None = None,
    *,
    resume: bool = False,
    reported: Reported | None = None,
    **settings: Any,
) -> Reported:
    """Run a configuration on nodes in this process."""
    reported = reported or Reported()
    changed = {**SETTINGS, **settings}
    grid = grid or nodes(folder, config)
    request = {
        "config": tomli_w.dumps(config),
        "settings": json.dumps(changed),
        "out": str(folder / "run"),
        "resume": resume,
    }
    serve(grid, request, reported)
    return reported


def nodes(
    folder: Path, config: Mapping[str, Any], clients: int = 6, meddle: Meddle | None = None
) -> FakeGrid:
    return FakeGrid(
        contexts(config, SETTINGS, range(clients), folder), *([meddle] if meddle else [])
    )


def models(run: Path) -> torch.Tensor:
    files = sorted((run / "models").glob("*.safetensors"))
    return torch.stack(
        [torch.cat([t.ravel() for _, t in sorted(load_file(file).items())]) for file in files]
    )


def groups(run: Path) -> list[int]:
    with (run / "groups.csv").open() as file:
        return [int(row["group"]) for row in csv.DictReader(file)]


def test_a_deployed_run_is_exported_without_its_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = tables("flexcfl")
    own = {
        **simulated["data"],
        "source": "nodes",
        "shape": [1, 8, 8],
        "classes": SETTINGS["classes"],
    }
    deploy(tmp_path, {**simulated, "data": own}, nodes(tmp_path, simulated))
    run = tmp_path / "run"
    done = export_run(run)
    body = (done.folder / "README.md").read_text()
    assert [g.clients for g in done.card.figures.groups] == [
        groups(run).count(0),
        groups(run).count(1),
    ]
    last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])
    assert [g.score for g in done.card.figures.groups] == last["accuracy_groups"]
    assert f"{100 * last['accuracy_all']:.1f} % of all" in body
    assert "as they reported it after 2 rounds" in body
    assert "only the clients know" in body
    for file in sorted((run / "models").iterdir()):
        theirs = load_file(done.folder / file.name)
        ours = load_file(file)
        assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())
    runpy.run_path(str(done.folder / "load.py"), run_name="__main__")
    assert "group 1" in capsys.readouterr().out
    names = json.loads((run / "nodes.json").read_text())
    for changed in (
        {},
        {**names, "shape": [-1]},
        {**names, "classes": "cat"},
        {**names, "clients": ["a"] * 7},
    ):
        RunFolder(run).write({"nodes.json": json.dumps(changed).encode()})
        with refuses(CheckpointError, "damaged", "nodes.json"):
            export_run(run)
    RunFolder(run).write({"nodes.json": b"[" * 5_000 + b"]" * 5_000})
    with refuses(CheckpointError, "damaged", "nodes.json"):
        export_run(run)
    (run / "nodes.json").write_text("{}")
    with refuses(CheckpointError, "damaged", "nodes.json"):
        export_run(run)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", METHODS)
def test_models_are_those_of_the_serial_engine(name: str, tmp_path: Path) -> None:
    config = tables(name)
    reported = deploy(tmp_path, config)
    run_config(check(as_deployed(config)), tmp_path / "here")
    assert not reported.refused
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))
    assert groups(tmp_path / "run") == groups(tmp_path / "here")
    rows = (reported.rows, RunFolder(tmp_path / "here").rows())
    for ours, theirs in zip(*rows, strict=True):
        assert ours["scored"] == theirs["scored"]
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=1e-6)
        assert ours["accuracy_groups"] == pytest.approx(theirs["accuracy_groups"], abs=1e-6)


# --- what clients and the way do to replies -------------------------------------------------------


def note_of(reply: Message) -> dict[str, Any]:
    return dict(reply.content.config_records["coterie"])


def forged(request: Message, reply: Message, how: str) -> list[Message]:
    """What a hostile client sends instead of its reply."""
    content = reply.content
    if "fields" not in content:
        return [reply]
    note = note_of(reply)
    fields = {n: a.numpy() for n, a in content.array_records["fields"].items()}
    name = "delta" if "delta" in fields else "correct"
    match how:
        case "shape":
            fields[name] = np.zeros((3, 3), np.float32)
        case "broadcast":
            fields[name] = np.zeros(1, np.float32)
        case "keys":
            fields["weights"] = fields.pop(name)
        case "nan":
            fields[name] = fields[name] * np.nan
        case "size":
            fields["size"] = np.asarray(1e18)
        case "cap":
            fields["size"] = np.asarray(1e7)
        case "dtype":
            fields[name] = np.zeros(fields[name].shape, np.int64)
        case "stranger":
            note["client"] = 0
        case "late":
            note["round"] -= 1
        case "round":
            note["round"] = "now"
        case "large":
            fields[name] = np.zeros(10**6)
    arrays = {n: Array(a) for n, a in fields.items()}
    if how == "bytes":
        arrays[name] = Array("float32", (10**12,), "numpy.ndarray", b"\x93NUMPY\x01\x00garbage")
    records: dict[str, Any] = {"coterie": ConfigRecord(note), "fields": ArrayRecord(arrays)}
    if how == "record":
        records["more"] = ConfigRecord({"a": 1})
    if how == "empty":
        records = {}
    return [Message(RecordDict(records), reply_to=request)]


REASONS = {
    **{
        "shape": "shape",
        "broadcast": "shape",
        "keys": "keys",
        "nan": "not finite",
        "size": "magnitude",
        "dtype": "dtype",
    },
    **{
        "stranger": "stranger",
        "late": "late",
        "round": "malformed",
        "large": "malformed",
        "bytes": "malformed",
    },
    **{"record": "keys", "empty": "malformed", "cap": "size"},
}
WITHOUT: dict[str, torch.Tensor] = {}


def without_the_last(folder: Path) -> torch.Tensor:
    """The models of a run in which the last client's replies never come; made once."""
    if "" not in WITHOUT:

        def lose(node: int, request: Message, replies: list[Message]) -> list[Message]:
            if node == 105 and request.metadata.message_type != "query.describe":
                return []
            return replies

        grid = nodes(folder / "w", tables(), meddle=lose)
        deploy(folder / "w", tables(rounds=1), grid, reply_wait=0.1)
        WITHOUT[""] = models(folder / "w" / "run")
    return WITHOUT[""]


@pytest.mark.parametrize("how", REASONS)
def test_a_hostile_client_is_counted_and_changes_nothing(how: str, tmp_path: Path) -> None:
    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        if node == 105:
            return [one for reply in replies for one in forged(request, reply, how)]
        return replies

    reported = deploy(tmp_path, tables(rounds=1), nodes(tmp_path, tables(), meddle=meddle))
    assert set(reported.refused) == {REASONS[how]}
    assert torch.equal(models(tmp_path / "run"), without_the_last(tmp_path))


def test_a_run_whose_last_round_nobody_scores_says_so(tmp_path: Path) -> None:
    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        failed = Message(Error(ErrorCode.CLIENT_APP_CRASHED, "why"), reply_to=request)
        return [failed] if request.metadata.message_type == "evaluate" else replies

    reported = deploy(tmp_path, tables(), nodes(tmp_path, tables(), meddle=meddle))
    assert [row["accuracy"] for row in reported.rows] == [None, None]
    assert [line for line in reported.lines if "no client was scored after the last round" in line]
    other = deploy(tmp_path / "b", tables())
    assert not [line for line in other.lines if "no client was scored" in line]


def test_replies_that_come_twice_or_again_later_change_nothing(tmp_path: Path) -> None:
    old: dict[int, Message] = {}

    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        past = [old[node]] if node in old else []
        for message in past:
            message.metadata.__dict__["_reply_to_message_id"] = request.metadata.message_id
        old[node] = replies[0]
        return [*replies, *replies, *past]

    reported = deploy(tmp_path, tables(), nodes(tmp_path, tables(), meddle=meddle))
    deploy(tmp_path / "b", tables())
    assert reported.refused["duplicate"] > 0
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "b" / "run"))


class SlowGrid(FakeGrid):
    """Nodes of which some are slow in some rounds: their trainings come in the next exchange, under
    the name of the request that they answer.

    Args:
        contexts: of each node.
        slow: round -> the clients.
    """

    def __init__(self, contexts: Mapping[int, Any], slow: Mapping[int, Sequence[int]]) -> None:
        super().__init__(contexts)
        self.slow = slow
        self.held: dict[str, list[Message]] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str | None]:
        self.arrived |= self.held
        self.held = {}
        messages = list(messages)
        names = list(super().push_messages(messages))
        for name, message in zip(names, messages, strict=True):
            late = self.slow.get(int(message.metadata.group_id or -1), ())
            trains = message.metadata.message_type == "train"
            if trains and message.metadata.dst_node_id - 100 in late:
                self.held[str(name)] = self.arrived.pop(str(name))
        return names


def test_the_first_replies_count_and_late_ones_are_never_counted(tmp_path: Path) -> None:
    """Six nodes are asked, the first four count: the models are those of a simulation with the same
    times, whose clients are late in the same rounds."""
    config = tables(rounds=3)
    config["train"] |= {"clients_per_round": 4, "over_selection": 1.5, "evaluate_every": 3}
    run_config(check(as_deployed(config)), tmp_path / "here")
    spec = compose(check(config)).spec
    slow = {}
    for number in range(3):
        late = spec.schedule.participation.late(
            spec.schedule.sampler(number), 6, spec.key.at(number)
        )
        assert late is not None
        slow[number] = np.flatnonzero(late.beyond).tolist()
    grid = SlowGrid(contexts(config, SETTINGS, range(6), tmp_path), slow)
    reported = deploy(tmp_path, config, grid, reply_wait=20.0)
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))
    # Nobody waited for them, and what came in a later round was no reply to it.
    assert reported.refused == {"late": 6}
    assert [row["notes"]["replies"] for row in reported.rows] == [4, 4, 4]


class LateGrid(FakeGrid):
    """Nodes 101 and 104 answer when they were asked for their reply four times."""

    def __init__(self, contexts: Mapping[int, Any]) -> None:
        super().__init__(contexts)
        self.looks: Counter[str] = Counter()

    def pull_messages(self, names: Iterable[str]) -> Iterable[Message]:
        (name,) = names
        self.looks[name] += 1
        replies = self.arrived.get(name, [])
        slow = [reply.metadata.src_node_id in (101, 104) for reply in replies]
        if any(slow) and self.looks[name] < 4:
            return []
        return super().pull_messages([name])


def test_an_exchange_that_lasts_says_whom_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.engines.flower.exchange.SILENT", 0.05)
    grid = LateGrid(contexts(tables(), SETTINGS, range(6), tmp_path))
    reported = deploy(tmp_path, tables(rounds=1), grid, reply_wait=600.0, longest_wait=600.0)
    line = r"round 1: waiting for client-01, client-04 \(2 of 6 clients\), for at most 9 min \d+ s"
    said = [one for one in reported.lines if re.fullmatch(line, one)]
    # In each of the two exchanges, and not at every look.
    assert 2 <= len(said) <= 4, reported.lines


def test_a_failed_reply_is_none_of_the_first_ones(tmp_path: Path) -> None:
    config = tables(rounds=1)
    config["train"] |= {"clients_per_round": 4, "over_selection": 1.5}

    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        if node == 100 and request.metadata.message_type == "train":
            return [Message(Error(ErrorCode.CLIENT_APP_CRASHED, "why"), reply_to=request)]
        return replies

    reported = deploy(tmp_path, config, nodes(tmp_path, config, meddle=meddle))
    assert reported.rows[0]["notes"]["replies"] == 4
    assert reported.refused == {"crashed": 1, "late": 1}


def test_clients_that_come_and_go_train_in_the_rounds_of_a_simulation(tmp_path: Path) -> None:
    """Nodes that are away in some rounds, as the file of a simulation says."""
    away = {1: [2, 3], 2: [0], 3: []}
    lines = [f"{client},0,{1}" for client in (2, 3)] + [f"{client},2,9" for client in (2, 3)]
    lines += ["0,0,2", "0,3,9"]
    (tmp_path / "spans.csv").write_text("client,from,until\n" + "\n".join(lines) + "\n")
    config = tables(rounds=4)
    config["train"] |= {"sampler": "uniform", "evaluate_every": 4}
    table = {"kind": "file", "file": str(tmp_path / "spans.csv"), "period": 0}
    run_config(check(as_deployed({**config, "availability": table})), tmp_path / "here")
    every = contexts(config, SETTINGS, range(6), tmp_path)
    grid = FakeGrid(every)

    class Schedule(Reported):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round":
                gone = away.get(value["round"] + 1, [])
                there = {node: one for node, one in every.items() if node - 100 not in gone}
                grid.contexts = there

    deploy(tmp_path, config, grid, reported=Schedule(), min_clients=4)
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        ({"availability": {}}, ("in-conflict", "availability")),
        ({"reply_times": {"deadline": 2.0}}, ("in-conflict", "reply_times")),
        ({"asynchronous": {}}, ("in-conflict", "asynchronous")),
    ],
)
def test_what_only_a_simulation_can_do_is_refused(
    table: dict[str, Any], refusal: tuple[Code, str], tmp_path: Path
) -> None:
    with refuses(ConfigError, *refusal):
        deploy(tmp_path, {**tables(), **table}, FakeGrid({}))


def test_a_node_that_fails_or_goes_is_counted_and_the_round_goes_on(tmp_path: Path) -> None:
    broken = nodes(tmp_path, tables())

    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        if node == 105 and request.metadata.message_type == "train":
            (tmp_path / "share-4.npz").unlink(missing_ok=True)
            broken.contexts.pop(105, None)
            return []
        return replies

    broken.meddle = meddle
    reported = deploy(tmp_path, tables(rounds=3), broken, min_clients=4, reply_wait=0.2)
    assert reported.refused["no answer"] == 1
    assert reported.refused["work"] + reported.refused["data"] > 0  # share-4 is gone
    assert "client 'client-05' left" in reported.lines
    assert len(reported.rows) == 3


def erring(code: int, kind: str, times: int = 1000) -> Meddle:
    """Errors of Flower in place of the last client's replies of one kind."""
    left = iter(range(times))

    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        matches = node == 105 and request.metadata.message_type == kind
        if matches and next(left, None) is not None:
            return [Message(Error(code, "why"), reply_to=request)]
        return replies

    return meddle


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "failed"),
        (ErrorCode.NODE_UNAVAILABLE, "unavailable"),
        (ErrorCode.MOD_FAILED_PRECONDITION, "failed"),
        (ErrorCode.INVALID_FAB, "unverified"),
        (ErrorCode.CLIENT_APP_CRASHED, "crashed"),
        (99, "unavailable"),
    ],
)
def test_errors_of_flower_are_counted_by_what_they_mean(
    code: int, reason: str, tmp_path: Path
) -> None:
    grid = nodes(tmp_path, tables(), meddle=erring(code, "train"))
    reported = deploy(tmp_path, tables(rounds=1), grid)
    assert reported.refused == {reason: 1}


def test_every_error_of_flower_has_a_word() -> None:
    codes = {code for name, code in vars(ErrorCode).items() if name.isupper()}
    assert codes == set(FLOWER_ERRORS)


@pytest.mark.parametrize("code", [ErrorCode.CLIENT_APP_CRASHED, ErrorCode.NODE_UNAVAILABLE])
def test_a_node_whose_app_died_as_it_was_met_is_asked_again(code: int, tmp_path: Path) -> None:
    grid = nodes(tmp_path, tables(), meddle=erring(code, "query.describe", times=2))
    reported = deploy(tmp_path, tables(rounds=1), grid)
    assert not reported.lines
    assert len(registered_names(tmp_path)) == 6


def test_a_node_that_takes_signed_apps_alone_is_refused(tmp_path: Path) -> None:
    grid = nodes(tmp_path, tables(), meddle=erring(ErrorCode.INVALID_FAB, "query.describe"))
    reported = deploy(tmp_path, tables(rounds=1), grid, min_clients=5, longest_wait=0.2)
    assert reported.refused == {"unverified": 1}
    assert reported.lines[0].startswith("refused: node 105: cannot take part, got 'unverified'")


def test_nobody_left_ends_the_run_and_it_can_be_resumed(tmp_path: Path) -> None:
    config = tables("flexcfl", rounds=3)
    grid = nodes(tmp_path, config)

    class Leaving(Reported):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] == 1:
                grid.contexts.clear()

    request = {
        "config": tomli_w.dumps(config),
        "settings": json.dumps({**SETTINGS, "longest_wait": 0.2}),
        "out": str(tmp_path / "run"),
        "resume": False,
    }
    with refuses(QuorumError, "too-few", "min_clients") as caught:
        serve(grid, request, Leaving())
    assert caught.value.problems[0].file == "deploy.toml"
    deploy(tmp_path, config, resume=True)
    deploy(tmp_path / "b", config)
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "b" / "run"))
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 3


# --- who takes part -------------------------------------------------------------------------------


class Hook(Reported):
    """Does something after a round."""

    def __init__(self, round: int, do: Any) -> None:
        super().__init__()
        self.round = round
        self.do = do

    def __call__(self, what: str, value: Any) -> None:
        super().__call__(what, value)
        if what == "round" and value["round"] == self.round:
            self.do()


def play(
    folder: Path, config: Mapping[str, Any], grid: FakeGrid, reported: Reported, **settings: Any
) -> None:
    request = {"config": tomli_w.dumps(config), "settings": json.dumps({**SETTINGS, **settings})}
    serve(grid, {**request, "out": str(folder / "run"), "resume": False}, reported)


def test_a_newcomer_is_placed_and_trains_and_one_who_returns_is_the_same_client(
    tmp_path: Path,
) -> None:
    config = tables("flexcfl", rounds=6)
    every = contexts(config, SETTINGS, range(6), tmp_path)
    grid = FakeGrid(every)
    grid.contexts.pop(102)
    away = Hook(1, lambda: (grid.contexts.update({102: every[102]}), grid.contexts.pop(104)))

    class Both(Hook):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] == 3:
                # A new key of the same client, which was registered with its name.
                grid.contexts[900] = every[104]
                grid.names[900] = "client-04"

    reported = Both(1, away.do)
    play(tmp_path, config, grid, reported, min_clients=4)
    with (tmp_path / "run" / "groups.csv").open() as file:
        rows = {row["client"]: row for row in csv.DictReader(file)}
    assert list(rows) == [
        "client-00",
        "client-01",
        "client-03",
        "client-04",
        "client-05",
        "client-02",
    ]
    assert int(rows["client-02"]["since_round"]) >= 2
    assert rows["client-02"]["group"] == rows["client-00"]["group"] != rows["client-01"]["group"]
    events = [event for row in reported.rows for event in row["attendance"]]
    assert {"kind": "joined", "clients": ["client-02"]} in events
    assert {"kind": "left", "clients": ["client-04"]} in events
    assert {"kind": "joined", "clients": ["client-04"]} in events
    assert not reported.refused
    assert list(view_of(tmp_path / "run").names) == list(rows)

    # The best round is one that scored all whom the last one scored, whose scores are in the file.
    scored = [len(row["client_scores"]) for row in reported.rows]
    assert scored == [5, 5, 5, 5, 6, 6]
    everyone = [row["accuracy"] for row in reported.rows if len(row["client_scores"]) == 6]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["accuracy"]["max"] == max(everyone)
    with (tmp_path / "run" / "clients.csv").open() as file:
        scores = {row["client"]: row for row in csv.DictReader(file)}
    assert list(scores) == list(rows)
    correct = sum(int(row["correct"]) for row in scores.values())
    samples = sum(int(row["test_samples"]) for row in scores.values())
    assert correct / samples == pytest.approx(reported.rows[-1]["accuracy_all"])


def test_a_client_without_training_samples_is_scored_alone(tmp_path: Path) -> None:
    grid = nodes(tmp_path, tables())
    with np.load(tmp_path / "share-5.npz") as held:
        np.savez(
            tmp_path / "share-5.npz", x=held["x"][:0], y=held["y"][:0], tx=held["tx"], ty=held["ty"]
        )
    reported = deploy(tmp_path, tables(rounds=1), grid, min_clients=5)
    to = [m.metadata.message_type for m in grid.sent if m.metadata.dst_node_id == 105]
    assert to == ["query.describe", "evaluate"]
    assert not reported.refused


def test_a_client_whose_data_are_swapped_migrates(tmp_path: Path) -> None:
    config = tables("flexcfl", rounds=6)
    grid = nodes(tmp_path, config)
    swap = Hook(
        2, lambda: (tmp_path / "share-0.npz").write_bytes((tmp_path / "share-1.npz").read_bytes())
    )
    play(tmp_path, config, grid, swap)
    moved = [row["round"] for row in swap.rows if row["migrations"]]
    assert moved == [4]  # it reported so in round 3, in which it was first asked
    assert groups(tmp_path / "run") == [
        1 - groups(tmp_path / "run")[2],
        *groups(tmp_path / "run")[1:],
    ]
    assert groups(tmp_path / "run")[0] == groups(tmp_path / "run")[1]


def test_models_that_a_client_keeps_are_sent_once_and_again_if_it_lost_them(tmp_path: Path) -> None:
    config = tables("flexcfl", rounds=6)
    grid = nodes(tmp_path, config)

    def other(a: int, b: int) -> None:
        (tmp_path / f"share-{a}.npz").write_bytes((tmp_path / f"share-{b}.npz").read_bytes())

    class Twice(Reported):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] in (0, 3):
                other(0, 1 if value["round"] == 0 else 2)
            if what == "round" and value["round"] == 3:
                for file in (tmp_path / "cache").rglob("*.safetensors"):
                    file.unlink()

    play(tmp_path, config, grid, reported := Twice())
    asked = [(message, note) for message in grid.sent for note, _ in parts_of(message)]
    asked = [(m, note) for m, note in asked if '"select_group"' in str(note.get("work", ""))]
    sent = [sum(name in m.content for name in note["models"].split()) for m, note in asked]
    assert sent == [3, 3, 0, 0, 3]  # two newcomers; none; none, again
    assert sum(row["migrations"] for row in reported.rows) == 2
    assert not reported.refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": "cat,dog,3,4,5,6,7,8,9,10"}, "a different class list, got \\['cat', 'dog'"),
        ({"client": "client-00"}, "another client's name, got 'client-00'; expected 'client-05'"),
        ({"client": ""}, "cannot take part, got 'data'"),
        ({"client": "x" * 65}, "not a Coterie client"),
    ],
)
def test_a_node_that_does_not_fit_is_refused_in_clear_words(
    change: dict[str, str], words: str, tmp_path: Path
) -> None:
    grid = nodes(tmp_path, tables())
    grid.contexts[105].node_config.update(change)
    reported = deploy(tmp_path, tables(rounds=1), grid, min_clients=5, longest_wait=0.2)
    (line,) = reported.lines
    assert line.startswith("refused: ")
    assert re.search(words, line), line


def test_two_keys_that_swap_their_names_get_no_number_and_no_group(tmp_path: Path) -> None:
    grid = nodes(tmp_path, tables())
    for node, name in ((104, "client-05"), (105, "client-04")):
        grid.contexts[node].node_config["client"] = name
    waits = {"min_clients": 4, "longest_wait": 0.2}
    reported = deploy(tmp_path, tables(rounds=2), grid, **waits)
    assert sorted(reported.lines) == [
        "refused: node 104: another client's name, got 'client-05'; expected 'client-04'",
        "refused: node 105: another client's name, got 'client-04'; expected 'client-05'",
    ]
    assert [row["refused"] for row in reported.rows] == [{"name": 2}, {}]
    assert registered_names(tmp_path) == [f"client-0{i}" for i in range(4)]
    trained = {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "train"}
    assert trained == {100, 101, 102, 103}


def test_a_client_that_is_away_keeps_its_name_from_another_key(tmp_path: Path) -> None:
    grid = nodes(tmp_path, tables())
    config = tables(rounds=4)
    away = grid.contexts.pop(100)
    grid.contexts[105].node_config["client"] = "client-00"

    def bring_back() -> None:
        grid.contexts[100] = away

    back = Hook(1, bring_back)
    play(tmp_path, config, grid, back, min_clients=4, longest_wait=0.2)
    assert back.refused["name"] == 1
    # Its number is that of the next name, as it comes later; and it is its own.
    assert registered_names(tmp_path) == [*(f"client-0{i}" for i in range(1, 5)), "client-00"]
    asked = {m.metadata.dst_node_id for m in grid.sent if note_of(m).get("client") == 4}
    assert asked == {100}


def test_a_key_without_a_name_and_a_name_of_two_keys_are_refused(tmp_path: Path) -> None:
    grid = nodes(tmp_path, tables())
    grid.names[104] = ""
    grid.names[105] = "client-00"
    grid.contexts[105].node_config["client"] = "client-00"
    reported = deploy(tmp_path, tables(rounds=1), grid, min_clients=4, longest_wait=0.2)
    named, twice = sorted(reported.lines)
    assert "'client-00': on two nodes at once" in named
    assert "registered without a name, got node 104" in twice
    assert "--name client-04" in twice
    assert registered_names(tmp_path) == [f"client-0{i}" for i in range(4)]


def registered_names(folder: Path) -> list[str]:
    return list(json.loads((folder / "run" / "nodes.json").read_text())["clients"])


def test_another_version_and_another_model_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = nodes(tmp_path, tables())
    monkeypatch.setattr("coterie.flower.node.node.version", lambda name: "0.0.9")
    with refuses(QuorumError, "too-few", "min_clients"):
        deploy(tmp_path, tables(), grid, min_clients=1, longest_wait=0.2)
    monkeypatch.undo()
    monkeypatch.setattr("coterie.flower.node.node.signature", lambda *_: "other")
    reported = Reported()
    with refuses(QuorumError, "too-few", "min_clients"):
        play(tmp_path / "b", tables(), grid, reported, min_clients=1, longest_wait=0.2)
    assert len(reported.lines) == 6
    assert all("another model, got 'other'" in line for line in reported.lines)


def test_who_joins_as_others_return_is_not_one_too_many(tmp_path: Path) -> None:
    grid = nodes(tmp_path, tables())
    config = tables()
    late = {node: grid.contexts.pop(node) for node in (104, 105)}
    with refuses(QuorumError, "too-few", "min_clients"):
        deploy(tmp_path, config, grid, longest_wait=0.2)
    assert len(json.loads((tmp_path / "run" / "nodes.json").read_text())["clients"]) == 4
    grid.contexts |= late
    reported = deploy(tmp_path, config, grid, resume=True)
    assert not [line for line in reported.lines if line.startswith("refused")]
    assert len(groups(tmp_path / "run")) == 6


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"shift": {"kind": "swap_all"}}, ("in-conflict", "shift")),
        (
            {"train": {"rounds": 2, "clients_per_round": 6, "measures": ["balance"]}},
            ("in-conflict", "train.measures"),
        ),
        (
            {"train": {"rounds": 2, "clients_per_round": 7}},
            ("out-of-range", "train.clients_per_round"),
        ),
    ],
)
def test_what_real_clients_cannot_do_is_refused(
    changed: dict[str, Any], refusal: tuple[Code, str], tmp_path: Path
) -> None:
    config = {**tables(clients=8), **changed}
    with refuses(ConfigError, *refusal):
        deploy(tmp_path, config, nodes(tmp_path, tables(clients=8)))


def test_a_client_chooses_a_model_and_trains_it_in_one_exchange(tmp_path: Path) -> None:
    config = tables()
    grid = nodes(tmp_path, config)
    spec = FederationSpec.of(check(config), DataForm((1, 8, 8), tuple(SETTINGS["classes"])), 8)
    layout = Layout.of(spec.network.module)
    ours = Identity("server", version("coterie"), signature(layout), (1, 8, 8), spec.form.classes)
    terms = Terms(ours, spec.local, 6, "run", timeout=PATIENCE)
    engine = FlowerEngine(grid, terms, say=lambda line: None)
    engine.gather(6, PATIENCE)
    sent = len(grid.sent)
    work = Train(spec.local.objective, choose="least_loss")
    start = flatten(spec.network.module)
    models = torch.stack([start, start + 0.3 * torch.randn(layout.d, generator=Key(1).torch())])
    ids = np.arange(6)
    which = np.tile([1, 0], (6, 1))
    key = Key(3, "train", 1)
    reply = Clients(engine).run(work, ids, models, which, key=key)
    assert len(grid.sent) - sent == 6
    population = load_data(check(config))[2]
    local = SerialEngine(
        LocalRunner(population, spec.network.module, spec.solver, spec.network.decay)
    )
    expected = Clients(local).run(work, ids, models, which, key=key)
    assert reply.ids.tolist() == ids.tolist()
    for name in ("choice", "size", "loss", "delta"):
        np.testing.assert_array_equal(reply.fields[name], expected.fields[name])


# --- what leaves a client -------------------------------------------------------------------------


PAGE = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
# What the pages of the methods say of their replies.
SENT = method_tables.sent()
TABLE = {name: set(re.findall(r"`(\w+)`", one.fields)) for name, one in SENT.items()}
DEPLOYED = {
    kind: set(re.findall(r"`(\w+)`", words))
    for kind, words in re.findall(r"^\| \*(\w+)\* \| ([^|]+)", PAGE, re.M)
}
# method -> exchanges of each of the four rounds of a run.
EXCHANGES = {
    name: [int(one) for one in re.findall(r"\d+", sent.exchanges)] for name, sent in SENT.items()
}
PRIVATE: Mapping[str, dict[str, Any]] = {
    **{name: {"groups": 2, "alpha": 1} for name in ("fedgroup", "fedgrouprox", "flexcfl")},
    **{name: {"groups": 2} for name in ("ifca", "fesem")},
    **{
        "fedgsp": {"beta": 2},
        "naive_gsp": {"groups": 2, "icg": True},
        "ida": {"intrac": True},
        "pacfl": {"vectors": 1},
        "flux": {"warmup_rounds": 1},
        "feroma": {"warmup_rounds": 1},
    },
    **{"astraea": {"gamma": 2}, "flhc": {"warmup_rounds": 1}, "feddrift": {"every": 1}},
    "fedbn": {"layers": ["1.bias"]},
}


# A deployment refuses pooled training alone.
FEDERATED = [name for name in ALGORITHMS if name != "pooled"]
MODELS = {"fedfusion": "mlp", "fedclust": "mlp", "fedper": "mlp", "fedrep": "mlp"}
MODELS |= {"lg_fedavg": "mlp"}


def every_method(name: str) -> dict[str, Any]:
    """Four rounds of a method with four clients."""
    config = tables("fedavg", clients=4)
    config["algorithm"] = {"name": name, **PRIVATE.get(name, {})}
    config["train"] = {"rounds": 4, "clients_per_round": 4}
    config["model"] = {"name": MODELS.get(name, "mclr")}
    return config


def shared_values(config: Mapping[str, Any]) -> int:
    """The values of a model that pass between server and clients."""
    spec = FederationSpec.of(check(config), DataForm((1, 8, 8), tuple(SETTINGS["classes"])), 8)
    return spec.local.shared_size(Layout.of(spec.network.module).d)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", FEDERATED)
def test_the_models_are_those_of_a_simulation_and_the_wire_has_what_the_page_says(
    name: str, tmp_path: Path
) -> None:
    config = every_method(name)
    run_config(check(as_deployed(config)), tmp_path / "here")
    with_loss = name == "fedavg"
    config["train"]["evaluate_loss"] = with_loss
    settings = {"clients": 4, "min_clients": 4}
    grid = nodes(tmp_path, config, 4)
    reported = deploy(tmp_path, config, grid, **settings)
    assert not reported.refused
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "here"))
    assert groups(tmp_path / "run") == groups(tmp_path / "here")
    seen: dict[str, set[str]] = {"hello": set(), "note": set(), "test": set(), "work": set()}
    d = shared_values(config)
    for request, reply in zip(grid.sent, grid.replied, strict=True):
        asked = parts_of(request)
        answers = parts_of(reply)
        # Two records for each request of the message, and nothing beside them.
        records = {part_name(one, n) for one in (NOTE, FIELDS) for n in range(len(asked))}
        assert set(reply.content) <= records
        if "identity" in answers[0][0]:
            assert set(answers[0][0]) == {"identity"}
            seen["hello"] |= set(json.loads(answers[0][0]["identity"]))
            continue
        for (wanted, _), (note, fields) in zip(asked, answers, strict=True):
            seen["note"] |= set(note)
            kind = "test" if json.loads(wanted["work"]).get("split") == "test" else "work"
            # Of a model that stays with its client nothing is sent, whatever the empty array is
            # called.
            seen[kind] |= {
                "slice" if name == "delta" and values.shape[-1] != d else name
                for name, values in fields.items()
                if values.size
            }
    counted = [row["exchanges"] for row in reported.rows]
    assert counted == EXCHANGES[name], "the page of the method has another count"
    migrates = name in ("flexcfl",)
    places = {"choice"} if name in ("fedgroup", "fedgrouprox", "flexcfl") else set()
    assert seen["work"] == TABLE[name] | places
    assert seen["hello"] == DEPLOYED["hello"]
    assert seen["test"] == DEPLOYED["test"] | ({"loss"} if with_loss else set())
    assert seen["note"] == DEPLOYED["note"] - (set() if migrates else {"drifted"})
    assert DEPLOYED["place"] == {"choice", "size"}


def test_noise_comes_from_a_secret_of_the_client(tmp_path: Path) -> None:
    config = tables("fedgsp", privacy="discrete_laplace", epsilon=0.1)
    seen = []
    for run in ("a", "b", "b"):
        grid = nodes(tmp_path / run, config)
        again = len(list((tmp_path / run).glob("run*")))
        request = {"config": tomli_w.dumps(config), "settings": json.dumps(SETTINGS)}
        serve(
            grid,
            {**request, "out": str(tmp_path / run / f"run{again}"), "resume": False},
            Reported(),
        )
        fields = [one for message in grid.replied for _, one in parts_of(message)]
        seen.append(np.stack([f["histogram"] for f in fields if "histogram" in f]))
    assert not np.array_equal(seen[0], seen[1])
    assert np.array_equal(seen[1], seen[2])
