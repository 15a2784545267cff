"""The records that everything else is made of. What several packages need is named here."""

from coterie.core.arrays import BoolArray, FloatArray, IntArray, places_of
from coterie.core.describe import Describe
from coterie.core.engine import Engine, Reply
from coterie.core.groups import NO_GROUP, Groups, GrowingRecord
from coterie.core.keep import ClientStore, Keep, KeepLayers
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.own_model import LocalTraining, Own, OwnModel, OwnTrained
from coterie.core.plan import ClientShares, Plan
from coterie.core.process import one_library_thread, one_torch_thread
from coterie.core.served import Served
from coterie.core.solver import Solver
from coterie.core.task import (
    CORRECT,
    Added,
    Metric,
    Sums,
    SumShapes,
    Task,
    at_most,
    headline_of,
    is_classes,
    ratio,
)
from coterie.core.training import Epochs, FullGradient, Mixture, Phases, Steps, WithOwnModel
from coterie.core.updates import Updates
from coterie.core.vectors import Layout, flatten, state_dict
from coterie.core.work import Deliver, Score, SelectGroup, Train, Work

__all__ = [
    "CORRECT",
    "NO_GROUP",
    "Added",
    "BoolArray",
    "ClientShares",
    "ClientStore",
    "Deliver",
    "Describe",
    "Engine",
    "Epochs",
    "FloatArray",
    "FullGradient",
    "Groups",
    "GrowingRecord",
    "IntArray",
    "Keep",
    "KeepLayers",
    "Key",
    "Layout",
    "LocalTraining",
    "Metric",
    "Mixture",
    "Objective",
    "Own",
    "OwnModel",
    "OwnTrained",
    "Phases",
    "Plan",
    "Reply",
    "Score",
    "SelectGroup",
    "Served",
    "Solver",
    "Steps",
    "SumShapes",
    "Sums",
    "Task",
    "Train",
    "Updates",
    "WithOwnModel",
    "Work",
    "at_most",
    "flatten",
    "headline_of",
    "is_classes",
    "one_library_thread",
    "one_torch_thread",
    "places_of",
    "ratio",
    "state_dict",
]
