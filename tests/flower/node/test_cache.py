"""What a node keeps on its disk, and for how many runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.flower.keys import replace_private
from coterie.flower.node.cache import KEPT_RUNS, NodeCache, cache_root, forget


def test_a_new_run_keeps_its_folder_when_the_clock_was_set_back(tmp_path: Path) -> None:
    """Its folder was taken for the oldest and removed with every message, so no training of a
    client with personal layers could be kept."""
    for number in range(KEPT_RUNS):
        folder = NodeCache(tmp_path, f"old-{number}").folder
        tomorrow = folder.stat().st_mtime + 86_400 + number
        os.utime(folder, (tomorrow, tomorrow))
    new = NodeCache(tmp_path, "new")
    found = sorted(path.name for path in tmp_path.glob("run-*"))
    assert new.folder.is_dir()
    assert found == ["run-new", "run-old-1", "run-old-2"]


def test_what_a_node_writes_while_it_is_forgotten_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that began before ended after: its values came back, or the command failed."""
    cache = NodeCache(cache_root({"cache": tmp_path}, "a"), "one")
    file = cache.folder / "kept.safetensors"
    replace_private(file, b"before")
    remove = shutil.rmtree

    def slow(folder: Path) -> None:
        # Files go before their folder, and a node writes whenever it is done.
        for one in folder.iterdir():
            one.unlink()
        with pytest.raises(FileNotFoundError):
            replace_private(file, b"after")
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", slow)
    assert forget("a", tmp_path) == ([cache.folder], None)
    assert list(cache.root.iterdir()) == []
