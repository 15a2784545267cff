"""Writes docs/scoreboard-small.md from the results that come with Coterie.

    python docs/scoreboard_page.py
    python docs/scoreboard_page.py runs/scoreboard-small/scoreboard.json

With a file of results these come with Coterie from then on. A test compares the page with what this
script writes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from coterie.studies.scoreboard.figures import SuiteFigures
from coterie.studies.scoreboard.page import markdown
from coterie.studies.scoreboard.results_file import published, read_results

SUITE = "small"
PAGE = Path(__file__).with_name(f"scoreboard-{SUITE}.md")
MADE_BY = (
    "<!-- Made by `python docs/scoreboard_page.py` from the results that come with Coterie. -->"
)
HOW = (
    "The rules are those of [the scoreboard](scoreboard.md). `coterie scoreboard small` runs it again, "
    "and `--merge published` shows these results next to yours."
)

RANKS = "## Ranks\n"
RANKS_PICTURE = (
    f"![Mean ranks with defaults and equal work; a bar is as wide as the critical "
    f"difference](figures/scoreboard-{SUITE}-ranks.svg)\n\n"
    "Two methods differ, at the level of 5 %, if their bars do not overlap (defaults, equal work). Those "
    "that do not differ from the best are blue. "
    "The picture is drawn by `docs/figures/draw.py`."
)


def page() -> str:
    """The page as text."""
    results = read_results(published(SUITE))
    title, rest = markdown(SuiteFigures(results, results["entries"])).split("\n", 1)
    before, after = rest.rstrip().split(RANKS, 1)
    return f"{MADE_BY}\n\n{title}\n\n{HOW}\n{before}{RANKS}\n{RANKS_PICTURE}\n{after}\n"


def take(results: Path) -> None:
    """Let these results come with Coterie. A file that was changed is refused.

    Args:
        results: a ``scoreboard.json`` of the whole suite.
    """
    suite = read_results(results)["suite"]
    if suite["name"] != SUITE:
        sys.exit(f"results: of another suite, got {suite['name']!r}; expected {SUITE!r}")
    shutil.copyfile(results, published(SUITE))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        take(Path(sys.argv[1]))
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
