"""What a call refuses, by the code and the path of its error, not by its words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coterie.errors import Code, CoterieError
from coterie.experiment import Experiment
from coterie.experiment.traits import refuse_conflicts
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.runs.fitting import make_method


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


def check_together(made: Method | Algorithm, **tables: Any) -> None:
    """Refuse what of these tables does not work with a method, as a run of it would."""
    fixed: dict[str, Any] = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 6}},
        "model": {"name": "mclr"},
        "train": {"rounds": 2},
    }
    experiment = Experiment.from_tables({**fixed, "algorithm": made, **tables})
    refuse_conflicts(experiment, make_method(experiment))
