"""The pictures of the methods are what their script draws, and every method's page shows its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
PAGES = sorted(
    path.stem for path in (FIGURES.parent / "algorithms").glob("*.md") if path.stem != "index"
)


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


@pytest.mark.parametrize("page", PAGES)
def test_every_method_has_a_picture_on_its_page(drawn, page):
    assert f"{page}.svg" in drawn
    text = (FIGURES.parent / "algorithms" / f"{page}.md").read_text(encoding="utf-8")
    assert f"](../figures/{page}.svg)" in text


def test_text_that_would_be_cut_off_is_refused(drawn):
    from svg import Canvas

    canvas = Canvas(100.0, 20.0, "narrow")
    canvas.text(0.0, 12.0, "short")
    with pytest.raises(AssertionError, match="cut off"):
        canvas.text(0.0, 12.0, "far too long for a picture of this width")
