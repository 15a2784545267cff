"""A federation on this machine: what is open, in words."""

from __future__ import annotations

from pathlib import Path

from coterie.flower.operate.local import LocalFederation


def test_the_line_says_what_is_open() -> None:
    behind_nginx = LocalFederation(Path("d"), port=18101, node_port=18001)
    assert behind_nginx.address == "127.0.0.1:18001"
    assert behind_nginx.control == "127.0.0.1:18101"
    assert behind_nginx.access.startswith("nodes connect to 127.0.0.1:18001, where nginx blocks")
    bare = LocalFederation(Path("d"), port=18101, node_port=18101)
    assert bare.access.startswith("nginx is not installed: nodes and those who start runs share")
    assert "127.0.0.1:18101, which is open to every user" in bare.access
