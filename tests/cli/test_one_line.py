"""What the machine or a stranger does to a command is one line, and no bug of ours."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.cli.main import invoke
from coterie.data.images.decoding import decode
from coterie.data.sources.files import file
from coterie.errors import DataError
from coterie.files import csv_text, safe_cell
from coterie.runs.folder.store import RunFolder
from tests.cli.conftest import errors
from tests.refusals import refuses


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file can become larger than so many bytes, as on a full disk."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def test_a_full_disk_is_one_line_and_leaves_no_half_folder(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with limited(2000):
        assert invoke(["run", config, "--out", "r"]) == 2
    assert errors(capsys)[0].startswith("out: cannot be written (File too large), got r")
    assert not [name for name in os.listdir() if name != config]


def test_a_disk_that_fills_up_during_a_run_is_one_line_and_the_run_resumes(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "straight", "--set", "train.rounds=30"]) == 0
    size = Path("straight/partition.npz").stat().st_size + 1000
    assert size < Path("straight/rounds.jsonl").stat().st_size
    capsys.readouterr()
    with limited(size):
        assert invoke(["run", config, "--out", "r", "--set", "train.rounds=30"]) == 4
    (line,) = errors(capsys)
    assert line.startswith("r: cannot be written (File too large)")
    assert invoke(["resume", "r"]) == 0
    model = "models/group-0.safetensors"
    assert Path("r", model).read_bytes() == Path("straight", model).read_bytes()


def read_only(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """No lock can be opened in a folder; the user of these tests may be root, who always can."""
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_CREAT | os.O_RDWR) and folder in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)


def test_a_folder_that_cannot_be_written_is_one_line(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "locked"]) == 0
    capsys.readouterr()
    read_only(monkeypatch, "locked")
    assert invoke(["resume", "locked"]) == 4
    assert errors(capsys)[0].startswith("locked: cannot be written (Permission denied)")
    assert invoke(["compare", config, "--out", "locked-sweep"]) == 4
    assert "locked-sweep: cannot be written (Permission denied)" in errors(capsys)[0]


def test_an_empty_configuration_of_a_run_is_one_line(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", config, "--out", "r"]) == 0
    Path("r/digests.json").unlink()
    Path("r/rounds.jsonl").unlink()
    for text in ("", "seed = 0\n[train]\nrounds = 1e400\n"):
        Path("r/config.toml").write_text(text)
        capsys.readouterr()
        assert invoke(["resume", "r"]) in (2, 4)
        assert "r/config.toml: " in capsys.readouterr().err
        # Without their record runs are only resumed.
        for words in (["watch", "r", "--once"], ["report", "r"]):
            assert invoke(words) in (2, 4)
            (line,) = errors(capsys)
            assert line.startswith(("r/digests.json: missing", "r/config.toml: "))
    assert not list(Path().glob("coterie-crash-*"))


# --- data -----------------------------------------------------------------------------------------


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> str:
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def test_parquet_with_columns_twice_or_without_features_is_one_line(tmp_path: Path) -> None:
    twice = pa.table([[1.0, 2.0], [3.0, 4.0], [0, 1]], names=["x", "x", "y"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with refuses(DataError, "in-conflict", "twice.parquet"):
        file(None, path=str(tmp_path / "twice.parquet"))
    np.savez(tmp_path / "none.npz", x=np.empty((3, 0)), y=np.arange(3))
    with refuses(DataError, "missing", "none.npz"):
        file(None, path=str(tmp_path / "none.npz"))
    one = parquet(tmp_path / "one.parquet", {"x": [1.0, 2.0], "y": [0, 1]})
    with refuses(DataError, "missing", "data.features"):
        file(None, path=one, features=[])


def test_a_flipped_bit_of_parquet_is_found_by_its_page_checksum(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=500)
    columns = {"x": values, "y": np.arange(500) % 3}
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    path = Path(parquet(tmp_path / "f.parquet", columns, **options))
    data = bytearray(path.read_bytes())
    data[data.index(values[100].tobytes()) + 2] ^= 1
    path.write_bytes(data)
    with refuses(DataError, "cannot-be-read", "f.parquet"):
        file(None, path=str(path))


def test_labels_that_are_not_exact_are_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "f.parquet", {"x": [1.0, 2.0, 3.0], "y": [1e300, 2e300, 0.0]})
    with refuses(DataError, "out-of-range", "f.parquet"):
        file(None, path=path)
    path = parquet(tmp_path / "g.parquet", {"x": [1.0, 2.0], "y": [float(2**53), 0.0]})
    assert file(None, path=path).label_names == ("0", str(2**53))


def test_a_huge_image_is_refused_by_its_header() -> None:
    from io import BytesIO

    from PIL import Image

    blob = BytesIO()
    Image.new("1", (10_000, 10_000)).save(blob, "PNG")
    assert len(blob.getvalue()) < 50_000
    with refuses(DataError, "out-of-range", "data"):
        decode([blob.getvalue()])


# --- CSV ------------------------------------------------------------------------------------------


def test_no_cell_is_a_formula_and_every_name_comes_back() -> None:
    names = ["=cmd|' /C calc'!A0", "+1+1", "@SUM(1)", "\tx", "\rx", "-x", "'=x", "ann", "-1", "1e5"]
    cells = [safe_cell(name) for name in names]
    assert all(not str(cell).startswith(("=", "+", "@", "\t", "\r", "-x")) for cell in cells)
    assert [str(cell).removeprefix("'") for cell in cells] == names
    assert len(set(cells)) == len(names)
    assert csv_text(["a"], [[-1], [None], [0.5]]) == 'a\r\n-1\r\n""\r\n0.5\r\n'


def test_groups_of_a_run_hold_no_formula(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "r", {"seed": 0})
    folder.results.write_groups(["=1+1", "@x"], np.array([0, 1]), np.array([0, 0]))
    lines = (folder.path / "groups.csv").read_text().splitlines()
    assert lines[1:] == ["'=1+1,0,0", "'@x,1,0"]
