"""A small deployment that tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.flower.operate.folder import init

CONFIG = """
seed = 3
[data]
source = "digits"
[data.partition]
kind = "planted"
clients = 3
groups = 2
[model]
name = "mclr"
[local]
epochs = 1
lr = 0.1
[train]
rounds = 3
clients_per_round = 3
evaluate_every = 3
[algorithm]
name = "fedavg"
"""


def write_deployment(tmp_path: Path) -> Path:
    """The folder of a deployment of three clients."""
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    (tmp_path / "c.toml").write_text(CONFIG)
    init(tmp_path / "d", tmp_path / "c.toml")
    return tmp_path / "d"


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    return write_deployment(tmp_path)
