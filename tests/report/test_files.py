"""Charts of runs as files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli_w

from coterie.cli.main import invoke
from tests.sweep.cases import TABLES, errors


def test_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = "c.toml"
    Path(config).write_text(tomli_w.dumps(TABLES))
    assert invoke(["run", config, "--out", "r"]) == 0
    for ending, begin in ((".png", b"\x89PNG"), (".svg", b"<svg"), (".pdf", b"%PDF")):
        assert invoke(["plot", "r", "--chart", "mix", "--out", f"deep/x{ending}"]) == 0
        assert Path(f"deep/x{ending}").read_bytes().startswith(begin)
    assert invoke(["plot", "r", "r", "--chart", "accuracy"]) == 0
    assert Path("r/accuracy.png").exists()
    capsys.readouterr()
    for arguments, words in (
        (
            ["--chart", "acuracy"],
            "--chart: .*one of client-mean, accuracy, bytes, .*mix-0; did you mean 'accuracy'",
        ),
        (
            ["--chart", "accuracy", "--out", "x.gif"],
            "--out: unknown kind of file, got 'x.gif'; .*.png, .svg, .pdf",
        ),
        (["--chart", "accuracy", "--out", "c.toml/x.png"], "--out: cannot be written"),
    ):
        assert invoke(["plot", "r", *arguments]) == 2
        (line,) = errors(capsys)
        assert re.search(words, line), line
