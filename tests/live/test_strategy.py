"""An ordinary Flower app on real nodes with TLS and keys: one is killed in a round, one joins later,
one answers garbage."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import tomli_w

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.flower.operate.local import LocalFederation, local_federation
from coterie.flower.processes.flower_commands import FEDERATION, run_flwr
from tests.conftest import PATIENCE

pytestmark = pytest.mark.flower
ROUNDS = 6
CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

def moved(message, context):
    # Each node moves the model towards the centre of its population.
    share = context.node_config["share"]
    values = message.content["arrays"]["w"].numpy()
    target = np.where(np.arange(values.size) % 2 == share % 2, 1.0, -1.0)
    return share, values, target.reshape(values.shape)

@app.train()
def train(message, context):
    share, values, target = moved(message, context)
    values = values + 0.5 * (target - values)
    if share == GARBAGE and message.content["config"]["server-round"] > 1:
        values = values * np.nan
    arrays = ArrayRecord({"w": Array(values.astype(np.float32))})
    metrics = MetricRecord({"num-examples": 10})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

@app.evaluate()
def evaluate(message, context):
    _, values, target = moved(message, context)
    loss = float(((values - target) ** 2).mean())
    metrics = MetricRecord({"num-examples": 10, "loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
"""
SERVER = """
import json
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
import coterie as ct
from coterie.flower import ClusteredStrategy

app = ServerApp()

@app.main()
def main(grid, context):
    method = ct.fedgroup(groups=2, alpha=2)
    strategy = ClusteredStrategy(method, min_available_nodes=3, min_train_nodes=3, out=OUT)
    first = ArrayRecord({"w": Array(np.zeros((4, 3), np.float32))})
    result = strategy.start(grid, first, ROUNDS, 120)
    rows = [{key: row[key] for key in ("refused", "attendance")} for row in result.rows]
    loss = result.evaluate_metrics_clientapp[ROUNDS]["loss"]
    found = {"groups": list(result.groups.values()), "rows": rows, "loss": loss}
    # Renamed into place, since the test waits for the file.
    Path(OUT, ".result").write_text(json.dumps(found))
    Path(OUT, ".result").rename(Path(OUT, "result.json"))
"""


def write_app(folder: Path, out: Path) -> None:
    folder.mkdir()
    (folder / "LICENSE").write_text("none\n")
    constants = f"GARBAGE = 2\nROUNDS = {ROUNDS}\nOUT = {str(out)!r}\n"
    (folder / "client_part.py").write_text(constants + CLIENT)
    (folder / "server_part.py").write_text(constants + SERVER)
    flower = {
        "publisher": "tests",
        "components": {"serverapp": "server_part:app", "clientapp": "client_part:app"},
        "config": {},
    }
    project = {
        "name": "ordinary",
        "version": "1.0.0",
        "license": {"file": "LICENSE"},
        "dependencies": ["flwr>=1.41"],
    }
    tables = {"project": project, "tool": {"flwr": {"app": flower}}}
    (folder / "pyproject.toml").write_text(tomli_w.dumps(tables))


def rows_of(out: Path) -> int:
    file = out / "rounds.jsonl"
    return len(file.read_text().splitlines()) if file.is_file() else 0


def wait_for(up: LocalFederation, out: Path, rows: int) -> None:
    end = time.monotonic() + PATIENCE
    while rows_of(out) < rows and time.monotonic() < end:
        time.sleep(0.5)
    assert rows_of(out) >= rows, up.log_of("superlink").read_text()[-2000:]


def test_nodes_that_fail_leave_and_join_are_grouped(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with local_federation(tmp_path / "federation", 4) as up:
        write_app(tmp_path / "app", out)
        up.register(["late"])
        run_flwr(up.home, ["run", str(tmp_path / "app"), FEDERATION])
        wait_for(up, out, 2)
        # In the middle of a round.
        up.nodes["client-00"].kill()
        up.start_node("late", 5)
        wait_for(up, out, ROUNDS)
        end = time.monotonic() + PATIENCE
        while not (out / "result.json").is_file() and time.monotonic() < end:
            time.sleep(0.5)
    found = json.loads((out / "result.json").read_text())
    # Each is near the centre of its own population: a single model would be at a loss of 1.
    assert found["loss"] < 0.1
    assert len(found["groups"]) == 5
    assert sum(row["refused"].get("not finite", 0) for row in found["rows"]) == ROUNDS - 1
    kinds = {event["kind"] for row in found["rows"] for event in row["attendance"]}
    assert kinds == {"joined", "left"}
