"""The demonstration: the planted groups are found, and newcomers are placed in them."""

from __future__ import annotations

from tests.report.pages import parse


def test_demo_finds_the_planted_groups_and_says_so(tmp_path):
    import io

    from rich.console import Console

    from coterie.cli.demo import run_demo

    printed = io.StringIO()
    path = run_demo(tmp_path, Console(file=printed, width=200))
    assert path.parent == tmp_path
    assert "Grouping helps: FedGroup gains" in parse(path).text
    assert "adjusted Rand index 1.00; 10 of 10 newcomers" in printed.getvalue()
    assert printed.getvalue().rstrip().endswith(f"page: {path.resolve()}")
