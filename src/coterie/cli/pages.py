"""Commands that write pages and charts: report, plot and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import DataRootOfRun, Debug, OpenPage, RunPaths, Trust, absolute


def report_command(
    runs: RunPaths,
    out: Annotated[
        Path | None,
        typer.Option(help="The file of the page. Default: report.html in the first run's folder."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="A folder for the page's charts as PNG files.")
    ] = None,
    pdf: Annotated[
        bool,
        typer.Option(
            "--pdf", help="Also write a PDF file next to the page (needs Chromium, Chrome or Edge)."
        ),
    ] = False,
    data_root: DataRootOfRun = None,
    trust: Trust = False,
    open_: OpenPage = False,
    debug: Debug = False,
) -> None:
    """Write an HTML report on one or more runs.

    The runs may still be in progress.
    """
    from coterie.report.write import write_report

    root = absolute(data_root)
    page = write_report(runs, out, figures=figures, pdf=pdf, root=root, trust=trust)
    show_page(page, open_)


def plot_command(
    runs: RunPaths,
    chart: Annotated[
        str, typer.Option(help="A chart of the report: accuracy, agreement, mix, map, tree, ...")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file: .png, .svg or .pdf. Default: <chart>.png in the first run's folder."
        ),
    ] = None,
    data_root: DataRootOfRun = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Write one chart of the report as PNG, SVG or PDF."""
    from coterie.report.files import write_chart
    from coterie.report.load import views_of
    from coterie.terminal import say

    views = views_of(runs, absolute(data_root), trust=trust)
    file = write_chart(out or runs[0] / f"{chart}.png", views, chart)
    say(f"chart: {file.resolve()}")


def demo_command(
    out: Annotated[Path, typer.Option(help="The folder of the page.")] = Path("runs/demo"),
    open_: OpenPage = False,
    debug: Debug = False,
) -> None:
    """Compare FedAvg with FedGroup on real digits.

    Takes less than a minute, and writes an HTML page.
    """
    from coterie.cli.demo import run_demo

    open_page(run_demo(out), open_)


def show_page(page: Path, wanted: bool) -> None:
    """Say where a page is, and open it in a browser if that is wanted."""
    from coterie.terminal import console

    # Soft, so that a long path is not broken and stays a link.
    console().print(f"page: {page.resolve()}", soft_wrap=True)
    open_page(page, wanted)


def open_page(page: Path, wanted: bool) -> None:
    """Open a page in a browser if that is wanted."""
    if wanted:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
