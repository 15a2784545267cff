"""A run folder of somebody else, whose state says anything: it is shown, or refused in one line."""

from __future__ import annotations

import copy
import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.flower.server.live import LIVE
from coterie.flower.watch.page import StatusServer
from tests.conftest import PATIENCE
from tests.engines.test_flower import deploy, tables
from tests.flower.watch.test_status import ASKING

# What JSON can hold in the place of something else.
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    1e308,
    float("nan"),
    "<b>\x1b[2J",
    "\ud800",
    [],
    [[]],
    {},
    {"a": None},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("strange")
    deploy(place, tables("fedavg", rounds=2))
    return place / "run"


def changed(rng: random.Random, value: Any) -> Any:
    """The same with something else in one place."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.2:
        return copy.deepcopy(rng.choice(STRANGE))
    found = copy.copy(value)
    place = rng.choice(list(found)) if isinstance(found, dict) else rng.randrange(len(found))
    if isinstance(found, dict) and rng.random() < 0.2:
        del found[place]
        return found
    found[place] = changed(rng, found[place])
    return found


def served(run: Path, server: StatusServer, path: str) -> int:
    server.folder = run
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        with connection.getresponse() as response:
            response.read()
            return response.status
    finally:
        connection.close()


@pytest.fixture
def server(run: Path) -> Iterator[StatusServer]:
    with StatusServer(run, 0) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()


def test_a_state_that_says_anything_is_shown_or_refused(
    run: Path, server: StatusServer, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(5)
    states: list[dict[str, Any]] = [json.loads((run / LIVE).read_bytes()), {**ASKING}]
    pages: Counter[int] = Counter()
    for number in range(100):
        state = changed(rng, changed(rng, states[number % 2]))
        (run / LIVE).write_text(json.dumps(state))
        page = served(run, server, "/")
        pages[page] += 1
        # The figures need less of the state than the page.
        assert page in (200, 503), state
        assert served(run, server, "/metrics") in (200, 503), state
        # As slow as ten of the others.
        if number % 10 == 0:
            assert invoke(["deploy", "status", str(run)]) == (0 if page == 200 else 4), state
        seen = capsys.readouterr()
        assert "Traceback" not in seen.err
        assert "\x1b[2J" not in seen.out + seen.err
    assert min(pages[200], pages[503]) > 20, pages


@pytest.mark.parametrize("name", [LIVE, "nodes.json"])
def test_a_state_that_is_too_deep_or_too_large_is_none(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / name).read_bytes() if (run / name).exists() else None
    try:
        for text in ("[" * 100_000, '{"a":' * 100_000, '{"connected": [' + "1" * 5000 + "]}"):
            (run / name).write_text(text)
            assert invoke(["deploy", "status", str(run)]) in (0, 4)
            assert "Traceback" not in capsys.readouterr().err
    finally:
        if before is not None:
            (run / name).write_bytes(before)
