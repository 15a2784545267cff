"""What a call refuses, by the code and the path of its error, not by its words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coterie.errors import Code, CoterieError


@contextmanager
def refuses(
    kind: type[CoterieError], code: Code, path: str
) -> Iterator[pytest.ExceptionInfo[CoterieError]]:
    """Expect an error of a class that has a problem of this code at this path.

    Args:
        path: a key, an argument or an option; of a file its name.
    """
    with pytest.raises(kind) as caught:
        yield caught
    found = caught.value.problems
    places = {(one.code, one.path) for one in found}
    names = {(one.code, Path(one.path).name) for one in found}
    assert (code, path) in places | names, f"{places}: {caught.value}"
