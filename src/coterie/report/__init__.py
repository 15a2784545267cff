"""The report of runs: an HTML page with charts, and its charts as files."""

from coterie.report.files import write_figures
from coterie.report.page import write_page
from coterie.report.titles import headline
from coterie.report.view import RunView

__all__ = ["RunView", "headline", "write_figures", "write_page"]
