"""The page of some run folders, written into one of them or elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from coterie.errors import CheckpointError, ConfigError, InUseError, first_line
from coterie.files import read_json, refuse_malformed, refuse_unwritable_output
from coterie.report.files import write_figures
from coterie.report.load import views_of
from coterie.report.page import write_page
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


# --- PDF ------------------------------------------------------------------------------------------


BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "msedge"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
PATIENCE = 120.0  # seconds for a browser to print


def write_pdf(page: Path, target: Path) -> Path:
    """Print a page, which has a style for paper.

    Raises:
        ConfigError: no such browser is on ``PATH``, or it ends without a file.
    """
    browser = find_browser()
    with refuse_unwritable_output("--pdf", target):
        # An old file must not be taken for the new one.
        target.unlink(missing_ok=True)
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        problem = _print(browser, page, target, Path(profile))
    if not target.exists():
        raise ConfigError("failed", "--pdf", f"{browser} did not write a PDF file", found=problem)
    return target


def find_browser() -> str:
    """The first browser that can print pages."""
    for name in BROWSERS:
        found = shutil.which(name)
        if found is not None:
            return found
    do = "install one, or print the page from any browser"
    raise ConfigError("not-installed", "--pdf", "no Chromium, Chrome or Edge is on PATH", do=do)


def _print(browser: str, page: Path, target: Path, profile: Path) -> str:
    """Print a page; returns what the browser said last."""
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--no-pdf-header-footer",
        # Charts are drawn for this width, and shrink to that of the paper: little, and two abreast.
        "--window-size=900,1200",
        f"--user-data-dir={profile}",
        f"--print-to-pdf={target.resolve()}",
    ]
    # Chromium has no sandbox for root, as in most containers, and does not start without this. The
    # page is ours: its security policy allows no script but its own.
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--no-sandbox")
    try:
        done = subprocess.run(
            [*command, page.resolve().as_uri()],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE:.0f} s"
    except OSError as error:
        return first_line(error)
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"exit code {done.returncode}"
