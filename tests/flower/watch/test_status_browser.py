"""The live page in a real browser: 200 clients with hostile names."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from coterie.flower.watch import page as page_module
from coterie.flower.watch.page import StatusServer
from coterie.flower.watch.status import FederationStatus
from tests.conftest import PATIENCE
from tests.flower.watch.test_status import ASKING, row, status_of
from tests.report.test_browser import ARGUMENTS, CHROMIUM, HOSTILE, playwright

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or shutil.which(CHROMIUM) is None, reason="no chromium"),
]


def hostile_status() -> FederationStatus:
    client = ASKING["clients"]["hospital-3"]
    live = {
        **ASKING,
        "connected": HOSTILE,
        "clients": dict.fromkeys(HOSTILE, client),
        "lines": [{"time": 0.0, "line": name} for name in HOSTILE],
    }
    rows = [row(at, [0.5 + at / 100, 0.6], refused={HOSTILE[at]: 1}) for at in range(10)]
    return status_of(live, rows, names=HOSTILE, groups=[0] * len(HOSTILE), rounds=20)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[str]:
    monkeypatch.setattr(page_module, "read_status", lambda folder: hostile_status())
    with StatusServer(tmp_path, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.address
        server.shutdown()


def test_hostile_names_of_200_clients_do_nothing_in_a_browser(address: str) -> None:
    messages: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS, timeout=1000 * PATIENCE
        )
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address, wait_until="load")
        page.wait_for_timeout(100)  # for what a hostile name might have started
        title = page.title()
        counted = page.locator("section:has(#table-1) tbody tr").count()
        scripts = page.locator("script, img, iframe").count()
        curves = page.locator("polyline").count()
        browser.close()
    assert messages == []
    assert set(asked) == {address}
    assert title == "fedavg on nodes"
    assert (counted, scripts, curves) == (len(HOSTILE), 0, 2)
