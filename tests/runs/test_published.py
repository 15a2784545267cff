"""Every file and page that a user may publish of a private run: neither seed nor secret, no
histogram, and nothing of a single client."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch

pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

import coterie as ct
from coterie.cli.main import invoke
from coterie.core import keys
from coterie.core.keys import Key
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.export.folder import export_run
from coterie.flower.operate.proxy import card_text
from coterie.flower.server.live import LIVE
from coterie.flower.settings import DeploymentSettings
from coterie.flower.watch.page import metrics_text, status_page
from coterie.flower.watch.status import read_status
from coterie.report.write import write_report
from coterie.runs.run import run_config
from tests.refusals import refuses
from tests.runs.calls import sweeps_here

SEED = 7391846  # found nowhere by chance
SECRET = int.from_bytes(hashlib.sha256(b"what nobody can guess").digest(), "big")
CLIENTS = 24
ROWS = 151
CLASSES = ("ash", "birch", "cedar")
NAMES = [f"ward-Xq{client:02d}" for client in range(CLIENTS)]


def write_table(path: Path) -> pd.DataFrame:
    """Clients of two kinds, whose classes depend on an input in other ways."""
    rng = np.random.default_rng(1)
    frames = []
    for client, name in enumerate(NAMES):
        inputs = rng.normal(size=(ROWS, 4)).round(3)
        label = (inputs[:, 0] > 0).astype(int) + (inputs[:, 1] > 1).astype(int)
        names = np.array(CLASSES)[(label + client % 2) % 3]
        columns = {f"x{at}": inputs[:, at] for at in range(4)}
        notes = np.array(["dry", "wet"], dtype=object)[rng.integers(2, size=ROWS)]
        # What only one client has says whose it is.
        notes[0] = f"seen at {name}"
        frames.append(pd.DataFrame({**columns, "note": notes, "tree": names, "ward": name}))
    frame = pd.concat(frames)
    frame.to_csv(path, index=False)
    return frame


def tables(path: Path, **changed: Any) -> dict[str, Any]:
    return {
        "seed": SEED,
        "data": {
            "source": "file",
            "path": str(path),
            "features": "*",
            "label": "tree",
            "client": "ward",
            "partition": {"kind": "natural"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 2, "batch_size": 20},
        "train": {"rounds": 3, "clients_per_round": 12},
        "algorithm": {"name": "ifca", "groups": 2},
        "engine": {"name": "serial"},
        "privacy": {"noise": 0.5, "clip": 0.5, "accountant": "rdp"},
        **changed,
    }


@dataclass(frozen=True)
class Rendered:
    """All artefacts of a private run: name -> bytes; and the folder of the run."""

    run: Path
    place: Path
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rendered]:
    place = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        # The same in every process: figures may be equal by chance.
        patch.setattr(keys.secrets, "randbits", lambda bits: SECRET)
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        yield render(place)


def render(place: Path) -> Rendered:
    write_table(place / "t.csv")
    made = place / "made"
    # Of MLflow a store of plain files, which are searched as all others.
    log = {"to": ["tensorboard", "mlflow"], "uri": (made / "mlflow").as_uri()}
    run = place / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow recommends another store
        run_config(check(tables(place / "t.csv", log=log)), run)
    export_run(run, made / "export", onnx=True)
    write_report([run], made / "report.html", figures=made / "figures")
    (run / "tensorboard").rename(made / "tensorboard")
    files = {f"{path.relative_to(made)}": path.read_bytes() for path in files_in(made)}
    files |= sweep_files(place)
    files |= pages(run)
    result = ct.Result.open(run)
    files["notebook"] = result._repr_html_().encode()
    return Rendered(run, place, files)


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sweep_files(place: Path) -> dict[str, bytes]:
    """The tables of `coterie compare`, and the page of its runs."""
    (place / "c.toml").write_text(tomli_w.dumps(tables(place / "t.csv")))
    out = place / "sweep"
    seeds = f"{SEED}-{SEED + 1}"
    command = ["compare", f"{place}/c.toml", "--algorithms", "ifca,fedavg", "--seeds", seeds]
    with sweeps_here():
        assert invoke([*command, "--out", str(out)]) == 0
    written = {path.name: path.read_bytes() for path in out.glob("*.*") if path.is_file()}
    assert {"table.md", "table.csv", "table.tex", "scores.csv", "runs.csv"} <= set(written)
    write_report([out], place / "sweep.html", figures=place / "sweep-figures")
    written["sweep.html"] = (place / "sweep.html").read_bytes()
    figures = {path.name: path.read_bytes() for path in files_in(place / "sweep-figures")}
    return {f"sweep/{name}": data for name, data in (written | figures).items()}


def pages(run: Path) -> dict[str, bytes]:
    """What is shown of a run in a browser, of one on real clients and of one in progress."""
    live = {
        "doing": "asking",
        "waiting": None,
        "connected": NAMES[:3],
        "clients": {NAMES[0]: {"last": 990.0, "kind": "train", "answers": 3, "failed": {}}},
        "lines": [{"time": 0.0, "line": f"client {NAMES[1]!r} left"}],
        "exchanges": [],
    }
    (run / LIVE).write_text(json.dumps(live))
    (run / "nodes.json").write_text(json.dumps({"clients": NAMES}))
    status = read_status(run)
    found = {"status page": status_page(status), "metrics": metrics_text(status)}
    (run / LIVE).unlink()
    (run / "nodes.json").unlink()
    settings = DeploymentSettings(shape=(4,), classes=CLASSES, clients=CLIENTS)
    found["federation.json"] = card_text(settings)
    return {name: text.encode() for name, text in found.items()}


# --- what files hold ------------------------------------------------------------------------------


def parts_of(data: bytes) -> Iterator[bytes]:
    """The bytes of a file, and of what is packed in it."""
    yield data
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield from parts_of(archive.read(name))
    if data.startswith(b"\x89PNG"):
        yield from _text_of_png(data)
    if data.startswith(b"PAR1"):
        yield pd.read_parquet(io.BytesIO(data)).to_csv().encode()
    # gzip, and the streams of PDF.
    for start in [match.start() for match in re.finditer(rb"\x1f\x8b\x08|stream\r?\n", data)][:50]:
        for begin, wbits in ((start, 31), (data.find(b"\n", start) + 1, 15)):
            try:
                yield zlib.decompressobj(wbits).decompress(data[begin:])
            except zlib.error:
                continue


def _text_of_png(data: bytes) -> Iterator[bytes]:
    at = 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind in (b"tEXt", b"iTXt", b"eXIf"):
            yield data[at + 8 : at + 8 + length]
        if kind == b"zTXt":
            yield zlib.decompress(data[at + 8 : at + 8 + length].partition(b"\0")[2][1:])
        at += 12 + length


def holding(rendered: Rendered, wanted: bytes) -> list[str]:
    """The artefacts that have these bytes."""
    return [
        name
        for name, data in rendered.files.items()
        if any(wanted in part for part in parts_of(data))
    ]


def numbers_in(rendered: Rendered) -> dict[str, set[str]]:
    """The numbers that stand in the texts of artefacts, without those of scripts."""
    found = {}
    for name, data in rendered.files.items():
        try:
            text = re.sub(r"<script>.*?</script>", "", data.decode(), flags=re.DOTALL)
        except UnicodeDecodeError:
            continue
        found[name] = set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w])", text))
    return found


# --- tests ----------------------------------------------------------------------------------------


def test_all_artefacts_are_there(rendered: Rendered) -> None:
    names = set(rendered.files)
    assert {"export/README.md", "export/load.py", "export/network.pt2", "report.html"} <= names
    assert {"export/predict.py", "export/columns.json", "export/group-0.onnx"} <= names
    assert any(name.startswith("tensorboard/") for name in names)
    assert any(name.startswith("figures/") for name in names)
    assert any(name.endswith("params/algorithm.name") for name in names)
    assert any(name.endswith("metrics/accuracy") for name in names)
    assert "export/groups.csv" not in names
    # What was found is what the search would find.
    assert "export/network.pt2" in holding(rendered, b"serialized_exported_program") or holding(
        rendered, b"graph_module"
    )
    assert any(name.startswith("tensorboard/") for name in holding(rendered, b"accuracy"))


def test_no_artefact_has_the_seed(rendered: Rendered) -> None:
    for seed in (SEED, SEED + 1):
        assert holding(rendered, str(seed).encode()) == []
        assert holding(rendered, f"{seed:,}".encode()) == []
        for packed in (struct.pack("<q", seed), struct.pack("<d", seed), struct.pack(">q", seed)):
            assert holding(rendered, packed) == []


def test_no_artefact_has_the_secret(rendered: Rendered) -> None:
    for file in [rendered.run / "noise.key", *rendered.place.glob("sweep/*/noise.key")]:
        key = file.read_text().strip()
        raw = bytes.fromhex(key)
        for wanted in (key.encode(), str(int(key, 16)).encode(), raw, raw[::-1], raw[:8]):
            assert holding(rendered, wanted) == []


def test_no_artefact_names_a_client(rendered: Rendered) -> None:
    assert holding(rendered, b"ward-Xq") == []


def test_no_artefact_has_a_histogram_or_a_share_of_a_class(rendered: Rendered) -> None:
    frame = pd.read_csv(rendered.place / "t.csv")
    member = pd.read_csv(rendered.run / "groups.csv").set_index("client")["group"]
    counts = frame.groupby([frame["ward"].map(member), "tree"]).size()
    shares = counts / counts.groupby(level=0).sum()
    totals = frame["tree"].value_counts()
    # Small numbers may stand anywhere.
    known = {str(count) for count in (*counts, *totals) if count >= 1000}
    known |= {repr(float(share)) for share in shares}
    assert len(known) > 3
    table = rendered.files["export/README.md"].decode()
    assert not any(f"| {name}" in table for name in CLASSES)
    for name, numbers in numbers_in(rendered).items():
        assert not numbers & known, (name, numbers & known)


def test_no_artefact_has_a_figure_of_a_single_client(rendered: Rendered) -> None:
    with (rendered.run / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    known = {repr(int(row["correct"]) / int(row["test_samples"])) for row in rows}
    for line in (rendered.run / "rounds.jsonl").read_text().splitlines():
        row = json.loads(line)
        known |= {repr(value) for value in row["accuracy_fairness"].values()}
        known |= {repr(value) for value in row["accuracy_quantiles"]}
        known |= {repr(row["loss"])}
    # Short ones may stand anywhere.
    known = {value for value in known if len(value) > 8}
    assert len(known) > 5
    for name, numbers in numbers_in(rendered).items():
        assert not numbers & known, (name, numbers & known)


def test_the_model_of_a_single_client_is_refused(rendered: Rendered, tmp_path: Path) -> None:
    with refuses(ConfigError, "in-conflict", "--client"):
        export_run(rendered.run, tmp_path / "e", client=NAMES[0])
    assert not (tmp_path / "e").exists()


def test_watch_shows_no_seed_and_no_client(
    rendered: Rendered, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["watch", str(rendered.run), "--once"]) == 0
    assert invoke(["watch", str(rendered.run)]) == 0
    text = capsys.readouterr().out
    assert "ifca on file" in text
    assert str(SEED) not in text
    assert "ward-Xq" not in text


def test_the_card_says_that_noise_was_added(rendered: Rendered) -> None:
    card = rendered.files["export/README.md"].decode()
    assert "No noise was added" not in card
    assert "differential" in card
    assert "epsilon" in card


def test_the_export_works_without_names_of_clients(rendered: Rendered) -> None:
    import runpy

    folder = rendered.place / "made/export"
    load = runpy.run_path(str(folder / "load.py"))
    module = load["load"](0)
    inputs = torch.zeros(3, *load["SHAPE"])
    expected = ct.Result.open(rendered.run).state.models[0]
    assert torch.equal(torch.cat([p.flatten() for p in module.parameters()]).detach(), expected)
    assert module(inputs).shape == (3, len(CLASSES))
    assert load["groups"]() == {}


# --- the attack -----------------------------------------------------------------------------------

ATTACKED: dict[str, Any] = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 20}},
    "model": {"name": "mclr"},
    "local": {"epochs": 2, "batch_size": 20},
    "train": {"rounds": 1, "clients_per_round": 20},
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "serial"},
}


def attacked(place: Path, **privacy: Any) -> torch.Tensor:
    """The model ``[d]`` of one round with noise."""
    table = {"epsilon": 1.0, "clip": 0.5, "accountant": "rdp", **privacy}
    run_config(check({**ATTACKED, "privacy": table}), place)
    return ct.Result.open(place).state.models[0].double()


def without_noise(place: Path, model: torch.Tensor, *streams: Key) -> Iterator[torch.Tensor]:
    """The model from which the noise of a stream is subtracted: ``(1 / n) N(0, (z C)^2)``."""
    spent = json.loads((place / "rounds.jsonl").read_text())["privacy"]
    for stream in streams:
        drawn = stream.at(0).of("noise").generator().standard_normal((1, len(model)))[0]
        yield model - spent["noise"] * spent["clip"] / 20 * torch.from_numpy(drawn)


def test_the_noise_cannot_be_recomputed_from_what_is_published(tmp_path: Path) -> None:
    little = attacked(tmp_path / "clear", epsilon=None, noise=0.001, randomness="seed_not_private")
    [clear] = without_noise(tmp_path / "clear", little, Key(0))

    def distance(model: torch.Tensor) -> float:
        return float((model - clear).norm())

    # The attack is right: where the noise follows from the seed, it is removed.
    weak = attacked(tmp_path / "weak", randomness="seed_not_private")
    [found] = without_noise(tmp_path / "weak", weak, Key(0))
    assert distance(found) < 1e-5 * distance(weak)
    run = tmp_path / "run"
    model = attacked(run)
    own = Key(int((run / "noise.key").read_text(), 16))
    [found] = without_noise(run, model, own)
    assert distance(found) < 1e-5 * distance(model)
    # By what is published it is not: all numbers there, and all seeds that a user would choose.
    export_run(run, tmp_path / "made/export")
    write_report([run], tmp_path / "made/report.html")
    files = {path.name: path.read_bytes() for path in files_in(tmp_path / "made")}
    numbers = set.union(*numbers_in(Rendered(run, tmp_path, files)).values())
    tried = {int(number) for number in numbers if number.isdigit()} | set(range(1000))
    tried |= {int(text, 16) for data in files.values() for text in hex_words(data)}
    nearest = min(map(distance, without_noise(run, model, *map(Key, tried))))
    assert nearest >= distance(model)


def hex_words(data: bytes) -> set[bytes]:
    return set(re.findall(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16})", data))
