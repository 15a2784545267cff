"""Features of an experiment that do not work with each other, or with the method, the task or the
data: all declarations.

Features that have a module of their own are declared there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coterie.core.solver import PLAIN_SGD
from coterie.core.task import SMOOTHED
from coterie.core.traits import Excluded, Feature, Trait, of_traits
from coterie.errors import shown
from coterie.measures.optional import COUNT_CLASSES
from coterie.methods.override import ASYNCHRONOUS, KEPT_OPTIMIZER
from coterie.privacy.private import NOISED_COLUMNS, PRIVACY, SMALL_GROUPS, UNIFORM_COHORTS
from coterie.privacy.secure_sums import SECURE

_UNSEEN = "some clients never train, but the shift changes clients' data"
_KEPT = "some samples are held out of training, but the shift changes clients' data"
_LEFT = "is measured after the round, but models are scored before it"
_UNLABELLED = "clients without labels cannot adapt a model"
_ONE_MODEL: Mapping[Trait, str] = {"mixture": "clients predict with several models"}
_OWN_DATA: Mapping[Trait, str] = {"data": "the method pools all data", **_ONE_MODEL}
_CLASSES = "classification or binary, another algorithm, or migration.detector 'none'"
_HELD = "the classes of its clients' samples"
_GROUPING = ("the algorithm places no clients", "an algorithm that groups clients, or no migration")
_STATISTICS = "the steps of the clients' own models do not update its running statistics"
_MIXED = "the method mixes probabilities of classes"
_ON_UPDATES = "an attack on updates"
_UNCHANGED = f"{_ON_UPDATES}, or lazy = false in [data]"
_AT_ONCE = ("needs all samples at once", "lazy = false in [data]")


def _beyond_plain_sgd() -> Iterator[Excluded]:
    why = "the steps of the clients' own models are written for plain SGD"
    for option, value in PLAIN_SGD.items():
        if value is None:
            yield Excluded(f"local.{option}", why)
        else:
            yield Excluded(f"local.{option}", why, shown(value), (value,))


FEATURES: tuple[Feature, ...] = (
    PRIVACY,
    SMALL_GROUPS,
    UNIFORM_COHORTS,
    NOISED_COLUMNS,
    SECURE,
    ASYNCHRONOUS,
    KEPT_OPTIMIZER,
    # A shift exchanges samples between clients, and says itself who comes and goes.
    Feature(
        "with [shift]",
        {"shift": ()},
        (Excluded("evaluate.unseen", _UNSEEN), Excluded("evaluate.validation", _KEPT)),
    ),
    Feature(
        "with train.sampler 'poisson'",
        {"train.sampler": ("poisson",)},
        (Excluded("train.over_selection", "the size of a cohort already varies", "1", (1,)),),
    ),
    Feature(
        "with this method",
        {},
        (Excluded("train.over_selection", "the method samples its clients itself", "1", (1,)),),
        traits=("all_clients",),
    ),
    Feature(
        "with reply times",
        {"reply_times": ()},
        needs={"reply_times.deadline": (), "asynchronous": (), "train.over_selection": (1,)},
        why="has no effect in this run",
        instead="a deadline, train.over_selection or [asynchronous]",
    ),
    # --- scoring
    Feature(
        "with evaluate.order 'before'",
        {"evaluate.order": ("before",)},
        (
            Excluded("evaluate.local", _LEFT, "false", (False,)),
            Excluded("evaluate.adapt", _LEFT),
            Excluded("evaluate.unseen", _LEFT),
            Excluded("evaluate.training", _LEFT, "false", (False,)),
        ),
    ),
    Feature(
        "with evaluate.unseen_labels",
        {"evaluate.unseen_labels": (False,)},
        (Excluded("evaluate.adapt", _UNLABELLED),),
        needs={"evaluate.unseen": ()},
        why=_UNLABELLED,
        instead="evaluate.unseen, or true",
    ),
    # The one client that has all data is scored by its last network as any other is.
    Feature(
        "with evaluate.local",
        {"evaluate.local": (True,)},
        of_traits("evaluate.local", "another algorithm, or false", _ONE_MODEL),
    ),
    Feature(
        "with evaluate.adapt",
        {"evaluate.adapt": ()},
        of_traits("evaluate.adapt", "another algorithm, or none", _OWN_DATA),
    ),
    Feature(
        "with evaluate.unseen",
        {"evaluate.unseen": ()},
        of_traits("evaluate.unseen", "another algorithm, or none", _OWN_DATA),
    ),
    # --- the task
    Feature(
        "with a method that counts classes",
        {},
        (Excluded("task.kind", f"the method counts {_HELD}", _CLASSES, None, "no_classes"),),
        traits=("class_labels",),
    ),
    Feature(
        "with migration",
        {},
        (
            Excluded("task.kind", f"migration compares {_HELD}", _CLASSES, None, "no_classes"),
            Excluded("migration.detector", *_GROUPING, None, "places_nobody"),
        ),
        traits=("migrates",),
    ),
    Feature(
        "with a method that mixes models",
        {},
        (Excluded("task.kind", _MIXED, "'classification'", None, "no_probabilities"),),
        traits=("mixture",),
    ),
    Feature(
        "with measures that count classes",
        {"train.measures": COUNT_CLASSES},
        (Excluded("train.measures", "the targets are not classes", "none", None, "no_classes"),),
    ),
    # --- local training
    SMOOTHED,
    Feature(
        "with this method",
        {},
        (
            *_beyond_plain_sgd(),
            Excluded("model.name", _STATISTICS, "a network without them", None, "moving_buffers"),
        ),
        traits=("plain_steps",),
    ),
    Feature(
        "with a network that has running statistics",
        {},
        (Excluded("engine.graphs", "its clients train one by one", "false", (False,)),),
        traits=("running_statistics",),
    ),
    # --- attackers that change their samples
    Feature(
        "with changed labels",
        {},
        (Excluded("attack.kind", "changes labels of classes", _ON_UPDATES, None, "no_classes"),),
        traits=("poisons",),
    ),
    Feature(
        "with attackers that change their data",
        {},
        (
            # What a client holds may belong to an honest one in the next round.
            Excluded("shift", "attackers change their data once, before the first round"),
            Excluded("attack.kind", "attackers change their data", _UNCHANGED, None, "lazy"),
        ),
        traits=("changes_data",),
    ),
    # --- data that are made client by client
    Feature(
        "with lazy data",
        {},
        (
            Excluded("train.hold_out", *_AT_ONCE),
            Excluded("evaluate.validation", *_AT_ONCE),
            Excluded("engine.samples", "no process holds all samples", "'shard'", ("shard",)),
            # It exchanges samples between clients, so it would have to make and keep those of all.
            Excluded("shift", *_AT_ONCE),
            Excluded("algorithm.name", *_AT_ONCE, None, "data"),
        ),
        traits=("lazy",),
    ),
)
