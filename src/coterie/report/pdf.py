"""A page as PDF, printed by a browser of the Chromium family that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from coterie.errors import ConfigError, first_line
from coterie.files import refuse_unwritable_output

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
        raise ConfigError("failed", "--pdf", f"{browser} printed nothing", found=problem)
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
