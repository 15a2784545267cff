"""Charts and the HTML page."""

from coterie.report.page import RunView, headline, write_figures, write_page

__all__ = ["RunView", "headline", "write_figures", "write_page"]
