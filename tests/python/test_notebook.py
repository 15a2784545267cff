"""A run in a notebook: the result as HTML, and the table that grows."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import coterie as ct
from coterie.headline import ACCURACY
from coterie.notebook import result_html
from tests.conftest import blobs, small_net
from tests.refusals import refuses


class Shown:
    """What a notebook shows of one display."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def update(self, page: str) -> None:
        self.pages.append(page)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """IPython's display, which notes what it is given."""
    shown = Shown()

    def display(page: str, *, display_id: bool) -> Shown:
        assert display_id
        shown.update(page)
        return shown

    module: Any = ModuleType("IPython.display")
    module.display = display
    module.HTML = lambda text: text
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def short_run(rounds: int, **options: Any) -> ct.Result:
    local = ct.Solver(epochs=1, lr=0.1)
    return ct.run(
        ct.fedgroup(groups=2, alpha=3),
        data=blobs(),
        model=small_net(),
        local=local,
        rounds=rounds,
        clients_per_round=4,
        engine="serial",
        **options,
    )


def test_a_result_is_html_and_a_table_grows_with_the_run(notebook: Shown) -> None:
    result = short_run(12, on_round=ct.LiveTable())
    page = result._repr_html_()
    final = f"{100 * result.accuracy[-1]:.1f} %"
    assert final in page
    assert page.count("<polyline") == 1
    assert len(notebook.pages) == 12
    # Ten rounds and the line of titles.
    assert notebook.pages[-1].count("<tr>") == 11
    assert final in notebook.pages[-1]
    assert notebook.pages[0].count("<tr>") == 2


def test_a_folder_with_brackets_is_no_markup() -> None:
    page = result_html([{"round": 0, "accuracy": None, "sizes": [1]}], ACCURACY, 1, "<b>")
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_a_live_table_outside_of_a_notebook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with refuses(ct.ConfigError, "not-installed", "on_round"):
        short_run(1, on_round=ct.LiveTable())
