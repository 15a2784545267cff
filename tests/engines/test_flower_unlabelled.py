"""Nodes whose data have no labels: placed by their inputs as in a simulation, and sent their model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Message
from safetensors.torch import load_file

from coterie.cli.main import invoke
from coterie.clients.wire import Request
from coterie.core.describe import Describe
from coterie.core.work import Deliver, Score, Train
from coterie.data.sources.files import DataForm
from coterie.errors import ConfigError, DataError
from coterie.experiment import check
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.kept import SERVED_FILE, ServedModel
from coterie.flower.node.cache import NodeCache, cache_root
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.node import Node
from coterie.runs.data import load_data
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.engines.fake_grid import FakeGrid, contexts, parts_of
from tests.engines.test_flower import (
    DEPLOYED,
    SETTINGS,
    TABLE,
    Reported,
    deploy,
    groups,
    models,
    tables,
)

# The clients without labels: one of each of the two planted groups.
UNLABELLED = (2, 5)
NAMES = [f"client-{client:02d}" for client in UNLABELLED]
LABELLED = 6 - len(UNLABELLED)
BY_INPUTS: Mapping[str, dict[str, Any]] = {
    "flux": {"warmup_rounds": 1, "groups": 2},
    "feroma": {"warmup_rounds": 0},
    "pacfl": {"vectors": 2, "groups": 2},
    "k_fed": {"groups": 2, "centres": 2},
}


def configured(name: str, rounds: int = 3, **options: Any) -> dict[str, Any]:
    config = tables(name, rounds, **{**BY_INPUTS.get(name, {}), **options})
    config["data"]["partition"]["how"] = "rotate"
    config["train"]["clients_per_round"] = LABELLED
    return config


def grid_of(folder: Path, config: Mapping[str, Any]) -> FakeGrid:
    """Six nodes, two of which say that they have no labels."""
    grid = FakeGrid(contexts(config, SETTINGS, range(6), folder))
    for client in UNLABELLED:
        grid.contexts[100 + client].node_config["unlabelled"] = True
    return grid


def run(folder: Path, config: Mapping[str, Any], grid: FakeGrid, **more: Any) -> Reported:
    return deploy(folder, config, grid, min_clients=LABELLED, **more)


def simulated(folder: Path, config: Mapping[str, Any]) -> Path:
    """The same in a simulation, whose figures are of the models after a round."""
    evaluate = {"unseen": list(UNLABELLED), "unseen_labels": False}
    run_config(check({**config, "evaluate": evaluate}), folder / "here")
    return folder / "here"


def served(folder: Path, name: str) -> ServedModel:
    """What a node was sent in its last run."""
    (path,) = cache_root({"cache": str(folder / "cache")}, name).glob(f"run-*/{SERVED_FILE}")
    return ServedModel.read(path)


def said(reported: Reported) -> list[str]:
    return [line for line in reported.lines if "has no labels" in line]


@pytest.mark.parametrize("name", BY_INPUTS)
def test_a_node_without_labels_joins_the_group_that_it_joins_in_a_simulation(
    name: str, tmp_path: Path
) -> None:
    config = configured(name)
    reported = run(tmp_path, config, grid_of(tmp_path, config))
    here = simulated(tmp_path, config)
    assert not reported.refused
    assert torch.equal(models(tmp_path / "run"), models(here))
    placed = groups(tmp_path / "run")
    assert placed == groups(here)
    assert min(placed) >= 0
    assert RunFolder(here).rows()[-1]["unseen_placed"] == len(UNLABELLED)
    for client, name_of_client in zip(UNLABELLED, NAMES, strict=True):
        mine = served(tmp_path, name_of_client)
        assert (mine.group, mine.by, mine.round) == (placed[client], "its inputs", 2)
        stored = load_file(tmp_path / "run" / "models" / f"group-{mine.group}.safetensors")
        assert all(np.array_equal(mine.tensors[key], stored[key].numpy()) for key in stored)
    assert said(reported) == [
        f"client {one!r} has no labels: it does not train, and is placed by its inputs after the "
        "last round"
        for one in NAMES
    ] + [
        f"client {one!r} has no labels: it was sent the model of group {placed[client]} (its inputs)"
        for client, one in zip(UNLABELLED, NAMES, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "options", "group", "by"),
    [
        (
            "fedgroup",
            {"groups": 2, "alpha": 2},
            -1,
            "no labels: the model for clients without a group",
        ),
        ("fedclust", {"groups": 2}, -1, "no labels: the model for clients without a group"),
        ("fedavg", {}, 0, "one model"),
    ],
)
def test_a_method_without_a_rule_says_so_and_sends_the_model_of_clients_without_a_group(
    name: str, options: dict[str, Any], group: int, by: str, tmp_path: Path
) -> None:
    config = configured(name, 2, **options)
    reported = run(tmp_path, config, grid_of(tmp_path, config))
    assert [groups(tmp_path / "run")[client] for client in UNLABELLED] == [group, group]
    mine = served(tmp_path, NAMES[0])
    assert (mine.group, mine.by) == (group, by)
    expected = models(tmp_path / "run").double().mean(dim=0).float()
    vector = torch.cat(
        [torch.from_numpy(mine.tensors[key]).ravel() for key in sorted(mine.tensors)]
    )
    torch.testing.assert_close(vector, expected)
    first = said(reported)[0]
    assert f"{name} cannot place it by its inputs" in first
    assert f"({by})" in said(reported)[-1]


def test_several_models_for_one_client_are_not_sent(tmp_path: Path) -> None:
    config = configured("fedem", 2, groups=2)
    reported = run(tmp_path, config, grid_of(tmp_path, config))
    assert "clients predict with several models, so none was sent" in said(reported)[-1]
    assert not list((tmp_path / "cache").rglob(SERVED_FILE))


def test_what_leaves_a_node_without_labels_is_on_the_page(tmp_path: Path) -> None:
    config = configured("flux")
    grid = grid_of(tmp_path, config)
    run(tmp_path, config, grid)
    left: dict[str, set[str]] = {}
    for request, reply in zip(grid.sent, grid.replied, strict=True):
        if request.metadata.dst_node_id - 100 not in UNLABELLED:
            continue
        for note, fields in parts_of(reply):
            if "identity" in note:
                assert set(json.loads(note["identity"])) == DEPLOYED["hello"]
                continue
            assert set(note) == DEPLOYED["note"] - {"drifted"}
            left.setdefault(note["purpose"], set()).update(fields)
    assert left == {"/unlabelled": {"latent", "size"}, "/deliver": {"size"}}
    assert left["/unlabelled"] == DEPLOYED["inputs"] & TABLE["flux"]
    assert left["/deliver"] == DEPLOYED["deliver"]
    # The moments of all samples, and none of a class.
    described = [
        fields["latent"].shape
        for reply in grid.replied
        for note, fields in parts_of(reply)
        if note.get("purpose") == "/unlabelled"
    ]
    assert described == [(2, 10)] * len(UNLABELLED)


def test_labels_do_not_matter_where_the_node_says_that_it_has_none(tmp_path: Path) -> None:
    """A loader without labels, and one whose labels are noise, leave the same."""
    config = configured("pacfl")
    sent = []
    for way in ("none", "noise"):
        folder = tmp_path / way
        grid = grid_of(folder, config)
        for client in UNLABELLED:
            file = folder / f"share-{client}.npz"
            with np.load(file) as held:
                arrays = dict(held)
            arrays["y"] = np.random.default_rng(0).permutation(arrays["y"])
            np.savez(file, **arrays)
            if way == "none":
                own = folder / f"own-{client}.py"
                own.write_text(
                    "import numpy as np\ndef load_client(context):\n"
                    f"    return (np.load({str(file)!r})['x'], None), None\n"
                )
                options = grid.contexts[100 + client].node_config
                options["loader"] = str(own)
                del options["unlabelled"]
        run(folder, config, grid)
        sent.append([served(folder, name) for name in NAMES])
    for one, other in zip(*sent, strict=True):
        assert one.group == other.group
        assert all(np.array_equal(one.tensors[key], other.tensors[key]) for key in one.tensors)


def test_a_node_that_left_is_placed_when_the_run_is_resumed(tmp_path: Path) -> None:
    config = configured("flux")
    grid = grid_of(tmp_path, config)

    def lose(node: int, message: Message, replies: list[Message]) -> list[Message]:
        purposes = {note.get("purpose") for note, _ in parts_of(message)}
        return [] if node == 105 and "/unlabelled" in purposes else replies

    grid.meddle = lose
    reported = run(tmp_path, config, grid, reply_wait=0.5)
    assert groups(tmp_path / "run")[5] == -1
    assert "did not reply; ask it again with `coterie deploy run --resume`" in said(reported)[-1]
    grid.meddle = lambda node, message, replies: replies
    again = run(tmp_path, config, grid, resume=True)
    assert not again.rows
    assert groups(tmp_path / "run") == groups(simulated(tmp_path, config))
    assert served(tmp_path, NAMES[1]).by == "its inputs"


def test_rounds_wait_for_clients_that_can_train(tmp_path: Path) -> None:
    """Nodes without labels are no clients of a round, also where they are first."""
    config = configured("fedavg", 2)
    grid = grid_of(tmp_path, config)
    late = {node: grid.contexts.pop(node) for node in (100, 101)}
    polls = 0
    nodes = grid.get_nodes

    def arriving() -> Any:
        nonlocal polls
        polls += 1
        if polls == 3:
            grid.contexts.update(late)
        return nodes()

    grid.get_nodes = arriving  # type: ignore[method-assign]
    reported = run(tmp_path, config, grid)
    assert [row["notes"]["replies"] for row in reported.rows] == [LABELLED, LABELLED]


# --- one node -------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Node:
    config = configured("flux")
    spec = FederationSpec.of(check(config), DataForm((1, 8, 8), tuple(SETTINGS["classes"])), 8)
    data = ClientData.of((np.zeros((4, 1, 8, 8)), None), None, spec.form)
    return Node(spec, data, NodeCache(tmp_path / "cache", "run"))


@pytest.mark.parametrize("work", [Train(), Score(), Describe("histogram", classes=10)])
def test_a_node_without_labels_refuses_what_needs_them(node: Node, work: Any) -> None:
    request = Request(work, torch.zeros(1, 650), 0, "train", 3, 2, 0, "run", "server", 0)
    with refuses(ConfigError, "does-not-fit", "node"):
        node.answer(request)
    assert node.identity("a", ["0"]).trains is False
    assert node.has_drifted(0) is None


def test_a_delivered_model_can_be_taken_away(node: Node, tmp_path: Path) -> None:
    vector = torch.arange(650, dtype=torch.float32)
    node.cache = NodeCache(cache_root({"cache": str(tmp_path)}, "clinic"), "run")
    request = Request(Deliver(1, "its inputs"), vector[None], 7, "d", 3, 2, 0, "run", "server", 0)
    assert {name: float(value) for name, value in node.answer(request).fields.items()} == {
        "size": 4
    }
    out = tmp_path / "mine.safetensors"
    assert invoke(["node", "export", "clinic", "--out", str(out), "--cache", str(tmp_path)]) == 0
    tensors = load_file(out)
    assert sum(tensor.numel() for tensor in tensors.values()) == 650
    file = node.cache.folder / SERVED_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(file.read_bytes()[:40])
    with refuses(DataError, "cannot-be-read", "served.safetensors"):
        ServedModel.read(file)


def test_test_samples_beside_inputs_without_labels_are_refused() -> None:
    form = DataForm((2,), ("a", "b"))
    x = np.zeros((3, 2))
    with refuses(DataError, "missing", "load_client"):
        ClientData.of((x, None), (x, [0, 1, 0]), form)


# --- files of a site ------------------------------------------------------------------------------


def test_files_without_labels_are_read_where_the_site_says_so(tmp_path: Path) -> None:
    config = configured("pacfl")
    grid = grid_of(tmp_path, config)
    _, _, population = load_data(check(config))
    for client in UNLABELLED:
        x = population.x[torch.from_numpy(population.train[client])].reshape(-1, 64).numpy()
        table = pd.DataFrame({"x": list(x)})
        file = tmp_path / f"site-{client}.parquet"
        table.to_parquet(file)
        options = grid.contexts[100 + client].node_config
        del options["loader"]
        options.update({"data": str(file), "shape": "1,8,8"})
    run(tmp_path, config, grid)
    assert groups(tmp_path / "run") == groups(simulated(tmp_path, config))
