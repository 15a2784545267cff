"""What `coterie deploy check` concludes of the answers to a stranger; the attack itself, at a real
server, is in tests/live/test_strangers.py."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from coterie.errors import ExposedError, RemoteError
from coterie.flower.operate import exposure
from coterie.flower.operate.exposure import Attempt, Stranger, refuse_exposed
from tests.refusals import refuses

ADDRESS = "fl.example.org:18001"


def listed(monkeypatch: pytest.MonkeyPatch, folder: Path, message: str) -> Attempt:
    """The attempt to list the runs, where Flower's command fails with a message."""

    def fail(home: Path, arguments: Sequence[str]) -> dict[str, Any]:
        raise RemoteError(message)

    monkeypatch.setattr(exposure, "run_flwr", fail)
    return Stranger(ADDRESS, folder / "ca.crt", folder).list_runs()


def test_a_refused_request_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    message = "flwr list: failed, got Client error '403 Forbidden' for url; expected a SuperLink"
    attempt = listed(monkeypatch, tmp_path, message)
    assert attempt == Attempt("list the runs", False, "status 403")
    refuse_exposed(ADDRESS, [attempt])


@pytest.mark.parametrize(
    "message",
    [
        # A proxy that passes everything on, before a SuperLink that is down.
        "flwr list: failed, got Server error '502 Bad Gateway' for url",
        "flwr list: no answer in 120 s",
        "flwr list: failed, got ModuleNotFoundError: No module named 'flwr'",
    ],
)
def test_what_no_server_refused_is_not_called_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message: str
) -> None:
    attempt = listed(monkeypatch, tmp_path, message)
    assert attempt.worked is None
    with refuses(RemoteError, "unreachable", ADDRESS):
        refuse_exposed(ADDRESS, [attempt])


class Silent:
    """A connection over which no answer comes."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def request(self, method: str, path: str, headers: dict[str, str]) -> None:
        raise self.error

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "worked"), [(TimeoutError("timed out"), None), (ConnectionResetError(), False)]
)
def test_a_server_that_is_slow_has_not_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError, worked: bool | None
) -> None:
    monkeypatch.setattr(Stranger, "_connection", lambda stranger: closing(Silent(error)))
    attempt = Stranger(ADDRESS, tmp_path / "ca.crt", tmp_path).read_pages()
    assert attempt.worked is worked
    assert attempt.answer.startswith("no answer")


def test_what_worked_is_said_before_what_is_not_known() -> None:
    attempts = [Attempt("list the runs", None, "no answer"), Attempt("run an app", True, "{}")]
    with refuses(ExposedError, "failed", ADDRESS):
        refuse_exposed(ADDRESS, attempts)
