"""A small configuration that tests of commands share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFIG = """
[data]
source = "digits"
[data.partition]
kind = "iid"
clients = 6
[model]
name = "mclr"
[local]
epochs = 1
[train]
rounds = 3
clients_per_round = 3
[algorithm]
name = "fedavg"
[engine]
name = "serial"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    (tmp_path / "c.toml").write_text(CONFIG)
    yield "c.toml"
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    found = capsys.readouterr().err.splitlines()
    assert all(line.startswith("error: ") for line in found)
    return [line.removeprefix("error: ") for line in found]
