"""Limits of a configuration's text, before it is parsed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.config.toml_text import parse_toml, read
from coterie.errors import ConfigError
from tests.refusals import refuses


@pytest.mark.parametrize(
    "text",
    [
        "a." * 20_000 + "a = 1",
        "[" + "a." * 20_000 + "a]",
        "x = {" + "a." * 20_000 + "a = 1}",
        '"a".' * 10_000 + "a = 1",
        'x = ["""y"""", {' + "a." * 10_000 + 'a = 1}, "z"]',
        "x = ['''y'''', {" + "a." * 10_000 + "a = 1}, 'z']",
        "x = " + "[" * 40_000,
        "x = " + "{a = " * 10_000,
        "# " + "x" * 1_000_001,
    ],
)
def test_deep_keys_and_long_files_are_refused_before_they_are_parsed(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    tracemalloc.start()
    with refuses(ConfigError, "cannot-be-read", "c.toml"):
        read(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    assert invoke(["run", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_dots_and_brackets_in_texts_comments_and_numbers_are_no_depth() -> None:
    dots = "." * 100 + "[" * 100
    text = f"""
a = "{dots}" # {dots}
b = '{dots}'
c = \"\"\"{dots}
\\" {dots}\"\"\"
d = '''{dots}'''
f = [\"\"\"{dots}\"\"\"\", '''{dots}''''', \"\"\"\"\"\"]
e = [{"1.5, " * 100}]
"f.{dots}" = 1
"""
    tables = parse_toml(text)
    assert tables["a"] == tables["b"] == tables["d"] == dots
    assert tables["f"] == [f'{dots}"', f"{dots}''", ""]
    assert len(tables["e"]) == 100
