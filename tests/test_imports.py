"""What imports of large packages have to do with the user's objects."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from coterie.imports import large_import


class Circle:
    """Garbage that only a search finds."""

    def __init__(self) -> None:
        self.me = self


def test_of_a_script_nothing_is_left_out_of_searches_for_garbage() -> None:
    with large_import():
        seen = weakref.ref(Circle())
        assert seen() is not None, "no search runs while something large is imported"
    gc.collect()
    assert seen() is None


def test_searches_that_the_user_turned_off_stay_so() -> None:
    gc.disable()
    try:
        with large_import():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


COMMAND = """
import gc, sys, weakref
from coterie.cli.main import main
from coterie.imports import large_import

class Circle:
    pass

sys.argv = ["coterie", "--version"]
try:
    main()
except SystemExit:
    pass
with large_import():
    circle = Circle()
    circle.me = circle
    seen = weakref.ref(circle)
    del circle
gc.collect()
print(seen() is not None)
"""


def test_a_command_leaves_what_it_has_imported_out_of_searches() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"
