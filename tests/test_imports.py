"""What searches for garbage have to do with imports."""

from __future__ import annotations

import gc

import pytest

from coterie import imports
from coterie.cli.main import main


@pytest.mark.parametrize("own", [False, True])
def test_only_a_process_of_coteries_own_leaves_what_is_there_out_of_searches(
    monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(imports, "_own_process", own)
    before = gc.get_freeze_count()
    with imports.large_import():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (gc.get_freeze_count() > before) == own


def test_searches_that_the_user_turned_off_stay_so() -> None:
    gc.disable()
    try:
        with imports.large_import():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_command_is_a_process_of_coteries_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_own_process", False)
    monkeypatch.setattr("sys.argv", ["coterie", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert imports._own_process
