"""The pictures of the methods are what their script draws, and the pages of the methods show them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
PAGES = FIGURES.parent / "algorithms"


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    sys.path.insert(0, str(FIGURES))
    try:
        from draw import pictures

        return pictures()
    finally:
        sys.path.remove(str(FIGURES))


def test_the_files_are_up_to_date(drawn):
    kept = {path.name: path.read_text(encoding="utf-8") for path in FIGURES.glob("*.svg")}
    assert kept == drawn, "run python docs/figures/draw.py"


def test_a_picture_of_a_method_is_on_its_page(drawn):
    pages = {f"{path.stem}.svg": path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    unseen = [name for name in drawn.keys() & pages if f"](../figures/{name})" not in pages[name]]
    assert unseen == []


def test_text_that_would_be_cut_off_is_refused(drawn):
    from svg import Canvas

    canvas = Canvas(100.0, 20.0, "narrow")
    canvas.text(0.0, 12.0, "short")
    with pytest.raises(AssertionError, match="cut off"):
        canvas.text(0.0, 12.0, "far too long for a picture of this width")
