"""The HTML page of some runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coterie.files import refuse_unwritable_output
from coterie.headline import ACCURACY
from coterie.report.render import Section, render_page
from coterie.report.sections import sections
from coterie.report.series import best_series, series_of
from coterie.report.titles import headline, verdict_sentence
from coterie.report.view import RunView, group_agreement, newcomer_placements

WHICH_ACCURACY = "Accuracies are those after the last evaluated round."
WHICH_FIGURES = "Figures are those after the last evaluated round."


def write_page(
    path: Path | str,
    runs: Sequence[RunView],
    title: str = "Coterie",
    intro: str = "",
    tuning: Sequence[Section] = (),
) -> Path:
    """Write the page of some runs over the same clients. Names of runs, clients and labels are
    escaped.

    The page loads nothing: data, charts and the Vega libraries are in it, and its content security
    policy allows only its own two scripts and its style, by their hashes.
    """
    target = Path(path)
    # Before the file is opened: an error in a chart leaves an earlier page as it was.
    text = page_of(runs, title, intro, tuning)
    with refuse_unwritable_output("--out", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Names may hold what UTF-8 cannot: half of a surrogate pair from a file's name.
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
    return target


def page_of(
    runs: Sequence[RunView], title: str = "Coterie", intro: str = "", tuning: Sequence[Section] = ()
) -> str:
    """The page of some runs as text; see `write_page`."""
    # Values have one number of decimals in every table of the page.
    values = [run.final_accuracy for run in runs]
    runs = [replace(run, headline=run.headline.with_decimals_for(values)) for run in runs]
    sentences = [verdict_sentence(runs), intro]
    if any(run.accuracies for run in runs):
        words = WHICH_ACCURACY if runs[0].headline == ACCURACY else WHICH_FIGURES
        sentences.append(words)
    under_headline = " ".join(sentence for sentence in sentences if sentence)
    return render_page(title, headline(runs), under_headline, facts(runs), sections(runs, tuning))


def facts(runs: Sequence[RunView]) -> list[tuple[str, str]]:
    """Name and value of each figure: clients and rounds, and what the best run with groups
    found."""
    if not runs:
        return []
    found = [
        ("clients", f"{runs[0].clients:,}"),
        ("rounds", str(max(len(run.rounds) for run in runs))),
    ]
    spent = [run.rounds[-1].get("privacy") for run in runs if run.rounds]
    if any(spent):
        most = max(one["epsilon"] for one in spent if one)
        found.append(("most privacy that a run spent (epsilon)", f"{most:.3g}"))
    # The same series that the headline names.
    best = best_series(one for one in series_of(runs) if one.grouped)
    if best is None:
        return found
    run = best.first
    found.append((f"groups of {best.name}", str(run.group_count)))
    score = group_agreement(run)
    if score is not None:
        name = f"agreement of {best.name}'s groups with the planted ones"
        found.append((f"{name} (adjusted Rand index, 1 = the same)", f"{score:.2f}"))
    known = [placed.right for placed in newcomer_placements(run) if placed.right is not None]
    if known:
        name = f"newcomers that {best.name} placed with their own population"
        found.append((name, f"{sum(known)} of {len(known)}"))
    return found
