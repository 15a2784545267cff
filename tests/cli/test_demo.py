"""The demonstration: newcomers come when they should, and the planted groups are found."""

from __future__ import annotations

import numpy as np

from tests.report.pages import parse


def test_newcomers_do_not_answer_before_they_come():
    from coterie.cli.demo import Arrivals
    from coterie.core.keys import Key

    asked = []

    class Recorder:
        def run(self, work, ids, models, which, *, key):
            asked.append(ids.tolist())
            return ["reply"]

        def close(self):
            asked.append("closed")

    late = Arrivals(Recorder(), np.array([0, 3, 0]))
    ids = np.arange(3)
    for round in (2, 3):
        assert late.run(None, ids, None, ids, key=Key(0).at(round)) == ["reply"]
    assert late.run(None, np.array([1]), None, np.array([1]), key=Key(0).at(2)) == []
    late.close()
    assert asked == [[0, 2], [0, 1, 2], "closed"]


def test_demo_finds_the_planted_groups_and_says_so(tmp_path):
    import io

    from rich.console import Console

    from coterie.cli.demo import run_demo

    printed = io.StringIO()
    path = run_demo(tmp_path, Console(file=printed, width=200))
    assert path.parent == tmp_path
    assert "grouping gained" in parse(path).text
    assert "adjusted Rand index 1.00; 10 of 10 newcomers" in printed.getvalue()
    assert printed.getvalue().rstrip().endswith(f"page: {path.resolve()}")
