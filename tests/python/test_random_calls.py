"""Random calls with values of wrong types run, or are refused by a coded error."""

from __future__ import annotations

import pytest

from tests.python.random_calls import failures


def test_some_random_calls_run_or_are_refused() -> None:
    found, ran, refused = failures(100, seed=1)
    assert not found, "\n".join(found)
    assert min(ran, refused) > 5


@pytest.mark.slow
def test_1000_random_calls_run_or_are_refused() -> None:
    found, ran, refused = failures(1000, seed=0)
    assert not found, "\n".join(found)
    assert min(ran, refused) > 100
