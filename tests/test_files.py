"""JSON of others: limits of size and depth, and one reader for all of it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import coterie
from coterie import files
from coterie.cli.main import invoke
from coterie.files import read_json

SOURCE = Path(coterie.__file__).parent
DEEP = b"[" * 100_000 + b"]" * 100_000
# Without Coterie, beside an export.
ALONE = {"files.py", "data/tabular/new_rows.py"}


@pytest.mark.parametrize(
    "text", [DEEP, DEEP.decode(), b'{"a":' * 60 + b"1" + b"}" * 60, b"[" * 51 + b"]" * 51]
)
def test_nested_too_deeply(text: bytes | str) -> None:
    with pytest.raises(ValueError, match="50 nested"):
        read_json(text)


def test_nested_as_deeply_as_is_allowed(tmp_path: Path) -> None:
    text = "[" * 50 + "]" * 50
    (tmp_path / "a.json").write_text(text)
    assert read_json(text) == read_json(tmp_path / "a.json") == json.loads(text)


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    assert read_json(tmp_path / "a.json") == [1, 2, 3]
    monkeypatch.setattr(files, "LARGEST_JSON", 8)
    for source in (tmp_path / "a.json", "[1, 2, 3]"):
        with pytest.raises(ValueError, match="9 bytes"):
            read_json(source)


def test_everything_reads_json_here() -> None:
    callers = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.load", "json.loads"):
                callers.add(file.relative_to(SOURCE).as_posix())
    assert callers == ALONE


def test_the_results_of_another_scoreboard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs.json").write_bytes(DEEP)
    suite = ["scoreboard", "small", "--out", str(tmp_path / "out")]
    assert invoke([*suite, "--merge", str(tmp_path / "theirs.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out").exists()
