"""Run folders whose files are damaged, or of another run, as commands read them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.errors import CheckpointError
from coterie.files import read_sealed, sealed
from coterie.report.load import view_of
from coterie.runs.folder.store import RunFolder
from tests.cli.conftest import errors
from tests.refusals import refuses

READING = (
    ["show", "r"],
    ["watch", "r", "--once"],
    ["report", "r"],
    ["plot", "r", "--chart", "accuracy"],
    ["export", "r"],
)


@pytest.fixture
def run(config: str, capsys: pytest.CaptureFixture[str]) -> Path:
    """A finished run in ``r``, and beside it one of another seed in ``other``."""
    values = ["--set", "checkpoint.seconds=0"]
    assert invoke(["run", config, "--out", "r", *values]) == 0
    assert invoke(["run", config, "--out", "other", "--seed", "1", *values]) == 0
    capsys.readouterr()
    return Path("r")


def another_value(file: Path) -> None:
    """A digit of an accuracy is another one."""
    text = file.read_text()
    file.write_text(re.sub(r'(accuracy": ?\{?[^0-9]*)0\.', r"\g<1>9.", text, count=1))


def another_bit(file: Path) -> None:
    """The last byte but one has another bit."""
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


def of_the_other_run(file: Path) -> None:
    shutil.copy(Path("other", *file.parts[1:]), file)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("summary.json", another_value),
        ("rounds.jsonl", another_value),
        ("rounds.jsonl", of_the_other_run),
        ("partition.npz", of_the_other_run),
        ("groups.csv", another_bit),
        ("clients.csv", another_bit),
        ("models/group-0.safetensors", another_bit),
        ("models/group-0.safetensors", Path.unlink),
        ("digests.json", of_the_other_run),
        ("digests.json", Path.unlink),
    ],
)
def test_every_command_refuses_a_file_that_is_not_the_runs(
    run: Path, name: str, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / name).read_bytes()
    damage(run / name)
    assert not (run / name).exists() or (run / name).read_bytes() != before
    for words in READING:
        assert invoke(words) == 4, words
        (line,) = errors(capsys)
        # The digests of another run say that the configuration is not theirs.
        named = "config.toml" if damage is of_the_other_run and name == "digests.json" else name
        assert line.startswith(f"r/{named}: ")


@pytest.mark.parametrize("name", ["partition.npz", "rounds.jsonl"])
def test_a_run_does_not_go_on_from_files_of_another(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of_the_other_run(run / name)
    assert invoke(["resume", "r"]) == 4
    assert errors(capsys)[0].startswith(f"r/{name}: ")


@pytest.mark.parametrize("name", ["summary.json", "clients.csv", "models/group-0.safetensors"])
def test_resume_writes_damaged_results_anew(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / name).read_bytes()
    another_bit(run / name)
    assert invoke(["resume", "r"]) == 0
    assert f"warning: r/{name}: damaged" in capsys.readouterr().err
    assert (run / name).read_bytes() == before
    assert invoke(["show", "r"]) == 0
    assert not capsys.readouterr().err


def test_an_older_checkpoint_is_always_said_and_exported_if_asked_for(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for damage, what in ((another_bit, "damaged"), (Path.unlink, "missing")):
        damage(run / "checkpoints" / "round-000003.safetensors")
        assert invoke(["report", "r"]) == 0
        assert f"round-000003.safetensors: {what}" in (said := capsys.readouterr().err)
        assert "the previous one is used" in said
        assert invoke(["export", "r"]) == 4
        line = capsys.readouterr().err.splitlines()[-1]
        assert "the latest checkpoint is damaged (the newest undamaged one is of round 2)" in line
        assert "--older-checkpoint" in line
        assert not (run / "export").exists()
        assert invoke(["export", "r", "--older-checkpoint"]) == 0
        shutil.rmtree(run / "export")
        capsys.readouterr()
    assert invoke(["resume", "r"]) == 0
    capsys.readouterr()
    assert invoke(["export", "r"]) == 0
    assert not capsys.readouterr().err


def test_settings_that_change_no_result_may_be_edited_and_are_said(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "config.toml"
    file.write_text(file.read_text().replace("keep = 2", "keep = 3"))
    assert invoke(["show", "r"]) == 0
    assert "config.toml has changed since the run began" in capsys.readouterr().err
    file.write_text(file.read_text().replace("lr = 0.03", "lr = 0.3"))
    assert invoke(["show", "r"]) == 4
    assert "r/config.toml: the configuration was changed (other values of local.lr)" in (
        capsys.readouterr().err
    )


def test_a_folder_that_lost_its_record_gets_a_new_one_where_it_goes_on(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "digests.json").unlink()
    assert invoke(["resume", "r"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == ("warning: r: digests.json is missing, so damaged files cannot be detected")
    assert invoke(["show", "r"]) == 0
    assert not capsys.readouterr().err
    another_value(run / "rounds.jsonl")
    assert invoke(["show", "r"]) == 4


def test_a_checkpoint_is_checked_by_itself_where_the_record_is_lost(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = run / "checkpoints" / "round-000003.safetensors"
    whole = newest.read_bytes()
    older = (run / "checkpoints" / "round-000002.safetensors").read_bytes()
    # A bit that flipped in a value, and a checkpoint of another round.
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    for damaged in (flipped, older):
        (run / "digests.json").unlink(missing_ok=True)
        newest.write_bytes(damaged)
        assert invoke(["resume", "r"]) == 0
        said = capsys.readouterr().err
        assert "round-000003.safetensors: damaged" in said
        assert "the previous one is used" in said
        assert newest.read_bytes() == whole


def test_a_changed_configuration_is_refused_where_the_record_is_lost(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "digests.json").unlink()
    file = run / "config.toml"
    file.write_text(file.read_text().replace("lr = 0.03", "lr = 0.3"))
    assert invoke(["resume", "r"]) == 4
    assert "the configuration was changed (other values of local.lr)" in capsys.readouterr().err


def test_a_folder_of_another_format_is_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = read_sealed((run / "digests.json").read_bytes())
    assert body is not None
    del body["format"]
    # The first format had another name for its number.
    for number, key in ((1, "schema"), (7, "format")):
        (run / "digests.json").write_bytes(sealed({**body, key: number}))
        for command in (*READING, ["resume", "r"]):
            assert invoke(command) == 4, command
            assert errors(capsys) == [
                f"r/digests.json: a different format, got {number}; expected 3, the format of this version"
            ]


def test_rows_without_digests_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As version 0.1 wrote them, without a record."""
    (run / "digests.json").unlink()
    rows = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        del row["chain"]
    (run / "rounds.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert invoke(["resume", "r"]) == 4
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: r/rounds.jsonl: line 1: damaged or of another run")


def test_numbers_that_no_run_writes_are_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "rounds.jsonl"
    text = file.read_text()
    file.write_text(re.sub(r'"accuracy":[0-9.]+', '"accuracy":1e400', text, count=1))
    for words in (["show", "r"], ["watch", "r", "--once"], ["report", "r"]):
        assert invoke(words) == 4
        assert "r/rounds.jsonl: line 1: damaged, got" in capsys.readouterr().err
    file.write_text(text)
    clients = (run / "clients.csv").read_text() + f"x,0,{10**19},{10**19}\n"
    RunFolder.open(run).write({"clients.csv": clients.encode()})
    assert invoke(["report", "r"]) == 4
    assert "r/clients.csv: damaged, got OverflowError" in capsys.readouterr().err


def test_a_run_that_was_killed_after_its_checkpoint_is_read_to_its_last_row(run: Path) -> None:
    folder = RunFolder.open(run)
    folder.rewind(2)
    folder.append_round({"round": 2, "accuracy": 0.5})
    with (run / "rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "torn')
    assert [row["round"] for row in folder.rows()] == [0, 1, 2]
    assert folder.results.summary() is None, "the results of three rounds are not those of two"
    assert view_of(run).rounds[-1] == {"round": 2, "accuracy": 0.5}
    folder.rewind(1)
    lines = (run / "rounds.jsonl").read_bytes()
    (run / "rounds.jsonl").write_bytes(b"")
    with refuses(CheckpointError, "damaged", "r/rounds.jsonl"):
        folder.rows()
    (run / "rounds.jsonl").write_bytes(lines)
    assert len(folder.rows()) == 1
