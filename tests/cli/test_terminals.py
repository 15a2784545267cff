"""A terminal that lacks the letters of a name shows their escapes, and ends no command; files may
begin with a byte order mark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.core.availability import read_spans
from tests.cli.conftest import CONFIG

CLIENTS = ("Zürich", "東京", "Łódź", "Αθήνα")
FILE = "läufe.csv"
RUN = "größe"
TABLE = f"""
[data]
source = "file"
path = "{FILE}"
features = "*"
label = "krank"
client = "spital"
[data.partition]
kind = "natural"
[model]
name = "mclr"
[train]
rounds = 2
clients_per_round = 3
[algorithm]
name = "ifca"
groups = 2
alpha = 2
[engine]
name = "serial"
"""


def table() -> str:
    lines = [
        f"{client},{row % 7},{'grün' if row % 3 else '青'},{'ja' if row % 2 else 'näin'}"
        for client in CLIENTS
        for row in range(40)
    ]
    return "\n".join(["spital,größe,farbe,krank", *lines]) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, a configuration, a run of it, and an export."""
    made = tmp_path_factory.mktemp("größe")
    before = Path.cwd()
    os.chdir(made)
    try:
        Path(FILE).write_text(table(), encoding="utf-8")
        Path("c.toml").write_text(TABLE, encoding="utf-8")
        assert invoke(["run", "c.toml", "--out", RUN]) == 0
        assert invoke(["export", RUN]) == 0
    finally:
        os.chdir(before)
    return made


def ended(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        timeout=240,
    )


COTERIE = ("-m", "coterie")
ASCII = {"PYTHONIOENCODING": "ascii"}
OTHERS = [
    {"PYTHONIOENCODING": "cp1252"},
    {"PYTHONIOENCODING": "cp850"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""},
]
COMMANDS = [
    (*COTERIE, "data", "inspect", "c.toml"),
    (*COTERIE, "run", "c.toml", "--out", "новый"),
    (*COTERIE, "show", RUN),
    (*COTERIE, "watch", RUN),
    (*COTERIE, "report", RUN),
    (*COTERIE, "list", "algorithms"),
    (*COTERIE, "predict", RUN, "--data", FILE, "--out", "vorhersage-ü.csv"),
    (*COTERIE, "compare", "c.toml", "--seeds", "1", "--out", "vergleich-ü"),
    (
        *COTERIE,
        "advise",
        FILE,
        "--client",
        "spital",
        "--label",
        "krank",
        "--methods",
        "ifca",
        "--rounds",
        "2",
        "--seeds",
        "1",
    ),
    (f"{RUN}/export/predict.py", FILE),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[-4:]))
def test_no_command_ends_by_a_letter(folder: Path, words: tuple[str, ...]) -> None:
    done = ended(folder, ASCII, *words)
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("coterie-crash-*"))
    (done.stdout + done.stderr).decode("ascii")


@pytest.mark.parametrize("environment", OTHERS, ids=lambda one: " ".join(one.values()))
def test_other_code_pages(folder: Path, environment: dict[str, str]) -> None:
    done = ended(folder, environment, *COTERIE, "data", "inspect", "c.toml")
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_run_from_python_goes_on_in_a_terminal_of_ascii(folder: Path) -> None:
    code = "import coterie as ct; ct.run(ct.Experiment.from_toml('c.toml'), out='π')"
    assert ended(folder, ASCII, "-c", code).returncode == 0


def test_a_byte_order_mark_before_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(CONFIG, encoding="utf-8-sig")
    assert invoke(["run", "c.toml", "--out", "r"]) == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_before_spans(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "spans.csv"
    file.write_text("client,from,until\nZürich,0,3\nZürich,5,6\n", encoding=encoding)
    assert read_spans(file) == {"Zürich": ((0, 3), (5, 6))}
