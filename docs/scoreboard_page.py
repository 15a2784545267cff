"""Writes docs/scoreboard-small.md from the results that come with Coterie.

    python docs/scoreboard_page.py

A test compares the file with what this script writes.
"""

from __future__ import annotations

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
    "and `--merge published` shows these results beside yours."
)


def page() -> str:
    """The page as text."""
    results = read_results(published(SUITE))
    title, rest = markdown(SuiteFigures(results, results["entries"])).split("\n", 1)
    return f"{MADE_BY}\n\n{title}\n\n{HOW}\n{rest.rstrip()}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
