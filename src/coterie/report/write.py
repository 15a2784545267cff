"""The page of some run folders, written into one of them or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from coterie.errors import CheckpointError, InUseError
from coterie.files import read_json, refuse_malformed
from coterie.report.files import write_figures
from coterie.report.load import views_of
from coterie.report.page import write_page
from coterie.report.pdf import find_browser, write_pdf
from coterie.report.render import Section
from coterie.report.titles import intro_of, title_of
from coterie.runs.folder.digests import DIGESTS, REPORT
from coterie.runs.folder.store import RunFolder
from coterie.sweep.tuning import TUNING
from coterie.terminal import say


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    *,
    figures: Path | None = None,
    pdf: bool = False,
    root: str | None = None,
    trust: bool = False,
) -> Path:
    """Write the HTML page of runs, finished or not, by default ``report.html`` in the first folder;
    with ``pdf`` also as PDF, next to it."""
    if pdf:
        find_browser()  # before the work
    views = views_of(runs, root, trust=trust)
    # In a sweep the name of a folder follows from the seed, too.
    title = "Coterie" if any(view.private for view in views) else title_of(runs)
    tuning = [section for path in runs for section in _tuning(path)]
    page = write_page(out or runs[0] / REPORT, views, title, intro_of(views), tuning)
    # A page elsewhere is no file of the run.
    if out is None:
        _record_page(runs[0])
    if figures is not None:
        say(f"figures: {len(write_figures(figures, views))} in {figures}")
    if pdf:
        say(f"pdf: {write_pdf(page, page.with_suffix('.pdf')).resolve()}")
    return page


def _tuning(path: Path) -> list[Section]:
    """How the settings of a sweep were chosen; nothing for other folders."""
    file = path / TUNING
    if not file.exists():
        return []
    with refuse_malformed(file):
        record = read_json(file)
        rows = [[name, *((figure, "figure") for figure in row)] for name, *row in record["rows"]]
        return [
            {
                "title": "How settings were chosen",
                "note": record["note"],
                "definitions": record["definitions"],
                "columns": record["columns"],
                "rows": rows,
            }
        ]


def _record_page(folder: Path) -> None:
    """Record the digest of the page in a run's folder, unless a process is writing the folder."""
    # A sweep's folder has none, and the page of a run in progress is not its last.
    if not (folder / DIGESTS).exists():
        return
    run = RunFolder(folder)
    with suppress(CheckpointError, InUseError), run.locked():
        run.write({REPORT: (folder / REPORT).read_bytes()})
