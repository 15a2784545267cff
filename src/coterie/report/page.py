"""The HTML page of some runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.headline import ACCURACY
from coterie.report.files import refuse_unwritable_output
from coterie.report.render import render_page
from coterie.report.sections import sections
from coterie.report.sections.facts import facts
from coterie.report.titles import gain_sentence, headline
from coterie.report.view import RunView

WHICH_ACCURACY = "Accuracies are those after the last evaluated round."
WHICH_FIGURES = "Figures are those after the last evaluated round."


def write_page(
    path: Path | str, runs: Sequence[RunView], title: str = "Coterie", intro: str = ""
) -> Path:
    """Write the page of some runs over the same clients.

    Names of runs, clients and labels are escaped. The page loads nothing: data, charts and the Vega
    libraries are in it, and its content security policy allows only its own two scripts and its
    style, by their hashes.
    """
    target = Path(path)
    # Before the file is opened: an error in a chart leaves an earlier page as it was.
    text = page_of(runs, title, intro)
    with refuse_unwritable_output("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Names may hold what UTF-8 cannot: half of a surrogate pair from a file's name.
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
    return target


def page_of(runs: Sequence[RunView], title: str = "Coterie", intro: str = "") -> str:
    """The page of some runs as text; see `write_page`."""
    sentences = [gain_sentence(runs), intro]
    if any(run.accuracies for run in runs):
        words = WHICH_ACCURACY if runs[0].headline == ACCURACY else WHICH_FIGURES
        sentences.append(words)
    under_headline = " ".join(sentence for sentence in sentences if sentence)
    return render_page(title, headline(runs), under_headline, facts(runs), sections(runs))
