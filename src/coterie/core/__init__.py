"""The records that everything else is made of. What several packages need is named here.

A module is imported when one of its names is first asked for: most of them need torch, which who
reads a run does not wait for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # isort: off
    from coterie.core.arrays import (
        BoolArray as BoolArray,
        FloatArray as FloatArray,
        IntArray as IntArray,
        places_of as places_of,
    )
    from coterie.core.describe import Describe as Describe
    from coterie.core.engine import Engine as Engine, Reply as Reply
    from coterie.core.groups import (
        NO_GROUP as NO_GROUP,
        Groups as Groups,
        GrowingRecord as GrowingRecord,
    )
    from coterie.core.keep import ClientStore as ClientStore, Keep as Keep, KeepLayers as KeepLayers
    from coterie.core.keys import Key as Key
    from coterie.core.objective import Objective as Objective
    from coterie.core.own_model import (
        LocalTraining as LocalTraining,
        Own as Own,
        OwnModel as OwnModel,
        OwnTrained as OwnTrained,
    )
    from coterie.core.plan import ClientShares as ClientShares, Plan as Plan
    from coterie.core.process import (
        one_library_thread as one_library_thread,
        one_torch_thread as one_torch_thread,
    )
    from coterie.core.served import Served as Served
    from coterie.core.solver import Solver as Solver
    from coterie.core.task import (
        CORRECT as CORRECT,
        Added as Added,
        Metric as Metric,
        Sums as Sums,
        SumShapes as SumShapes,
        Task as Task,
        at_most as at_most,
        headline_of as headline_of,
        is_classes as is_classes,
        ratio as ratio,
    )
    from coterie.core.training import (
        Epochs as Epochs,
        FullGradient as FullGradient,
        Mixture as Mixture,
        Phases as Phases,
        Steps as Steps,
        WithOwnModel as WithOwnModel,
    )
    from coterie.core.updates import Updates as Updates
    from coterie.core.vectors import Layout as Layout, flatten as flatten, state_dict as state_dict
    from coterie.core.work import (
        Deliver as Deliver,
        Score as Score,
        SelectGroup as SelectGroup,
        Train as Train,
        Work as Work,
    )
    # isort: on

_NAMES = {
    "arrays": "BoolArray FloatArray IntArray places_of",
    "describe": "Describe",
    "engine": "Engine Reply",
    "groups": "NO_GROUP Groups GrowingRecord",
    "keep": "ClientStore Keep KeepLayers",
    "keys": "Key",
    "objective": "Objective",
    "own_model": "LocalTraining Own OwnModel OwnTrained",
    "plan": "ClientShares Plan",
    "process": "one_library_thread one_torch_thread",
    "served": "Served",
    "solver": "Solver",
    "task": "CORRECT Added Metric Sums SumShapes Task at_most headline_of is_classes ratio",
    "training": "Epochs FullGradient Mixture Phases Steps WithOwnModel",
    "updates": "Updates",
    "vectors": "Layout flatten state_dict",
    "work": "Deliver Score SelectGroup Train Work",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
