"""A terminal that lacks the letters of a name shows their escapes, and ends no command; files may
begin with a byte order mark."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import coterie as ct
from coterie.cli.main import invoke
from coterie.core.availability import read_spans
from coterie.terminal import columns_table, console, say, with_escapes
from tests.cli.conftest import CONFIG
from tests.conftest import PATIENCE
from tests.runs.calls import sweeps_here

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
    with chdir(made):
        Path(FILE).write_text(table(), encoding="utf-8")
        Path("c.toml").write_text(TABLE, encoding="utf-8")
        assert invoke(["run", "c.toml", "--out", RUN]) == 0
        assert invoke(["export", RUN]) == 0
    return made


def ended(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess:
    """Python in a process of its own, as a user of such a terminal starts it."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )


@contextmanager
def terminal(folder: Path, encoding: str) -> Iterator[io.BytesIO]:
    """What this process prints, from a folder, where the terminal has an encoding.

    As Python opens them: standard output is strict, and standard error writes escapes.
    """
    printed = io.BytesIO()
    out = io.TextIOWrapper(printed, encoding, errors="strict", write_through=True)
    err = io.TextIOWrapper(printed, encoding, errors="backslashreplace", write_through=True)
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        yield printed
    for stream in (out, err):
        stream.detach()


ASCII = {"PYTHONIOENCODING": "ascii"}
INSPECT = ("data", "inspect", "c.toml")
COMMANDS = [
    INSPECT,
    ("run", "c.toml", "--out", "новый"),
    ("show", RUN),
    ("watch", RUN),
    ("report", RUN),
    ("list", "algorithms"),
    ("predict", RUN, "--data", FILE, "--out", "vorhersage-ü.csv"),
    (
        *("advise", FILE, "--client", "spital", "--label", "krank"),
        *("--methods", "ifca", "--rounds", "2", "--seeds", "1"),
    ),
]
# A sweep starts processes of its own, which print to pipes; an export knows nothing of Coterie.
PROCESSES = [
    (
        *("-m", "coterie", "compare", "c.toml", "--algorithms", "ifca"),
        *("--seeds", "1", "--out", "vergleich-ü"),
    ),
    (f"{RUN}/export/predict.py", FILE),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_no_command_ends_by_a_letter(folder: Path, words: tuple[str, ...]) -> None:
    with terminal(folder, "ascii") as printed, sweeps_here():
        with_escapes(sys.stdout)  # as `main` begins
        assert invoke(words) == 0, printed.getvalue()
    assert printed.getvalue()
    assert not list(folder.glob("coterie-crash-*"))


@pytest.mark.slow
@pytest.mark.parametrize("words", PROCESSES, ids=["compare", "predict.py"])
def test_no_process_ends_by_a_letter(folder: Path, words: tuple[str, ...]) -> None:
    done = ended(folder, ASCII, *words)
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("coterie-crash-*"))
    (done.stdout + done.stderr).decode("ascii")


def test_bars_have_letters_of_ascii(folder: Path) -> None:
    with terminal(folder, "ascii") as printed:
        with_escapes(sys.stdout)
        assert invoke(INSPECT) == 0
    bars, _, mix = printed.getvalue().decode("ascii").partition("label mix")
    assert "#" * 30 in bars
    assert "a column per class (. little, # nearly all)" in mix


@pytest.mark.parametrize("encoding", ["cp1252", "cp850"])
def test_other_code_pages(folder: Path, encoding: str) -> None:
    with terminal(folder, encoding) as printed:
        with_escapes(sys.stdout)
        assert invoke(INSPECT) == 0, printed.getvalue()
    assert printed.getvalue()


def test_the_locale_of_c(folder: Path) -> None:
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    done = ended(folder, environment, "-m", "coterie", *INSPECT)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_run_from_python_goes_on_in_a_terminal_of_ascii(folder: Path) -> None:
    with terminal(folder, "ascii") as printed:
        ct.run(ct.Experiment.from_toml("c.toml"), out="π", on_round=lambda after: say(RUN))
    assert printed.getvalue() == b"gr\\xf6\\xdfe\n" * 2


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


def test_the_head_of_a_column_takes_several_lines_before_a_cell_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    heads = [f"a rather long head of the column number {at}" for at in range(9)]
    console().print(columns_table(heads, [["name", *["94 to 104"] * 8]] * 2))
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("94 to 104") for line in lines][-2:] == [8, 8]
    assert all(len(line) <= 110 for line in lines)
    assert lines[0].split() == ["a"]
