"""Features of an experiment that do not work with each other, or with the method, the task or the
data: all declarations.

Features that have a module of their own are declared there.
"""

from __future__ import annotations

from collections.abc import Mapping

from coterie.core.traits import Excluded, Feature, Trait, of_traits
from coterie.methods.override import ASYNCHRONOUS, KEPT_OPTIMIZER
from coterie.privacy.private import NOISED_COLUMNS, PRIVACY, UNIFORM_COHORTS
from coterie.privacy.secure_sums import SECURE

_UNSEEN = "clients that never train, in a federation whose data move"
_KEPT = "samples that are kept from training, in a federation whose data move"
_LEFT = "is of what the round left, and models are scored before it"
_UNLABELLED = "clients without labels never train, and adapt no model"
_ONE_MODEL: Mapping[Trait, str] = {"mixture": "clients predict with several models"}
_OWN_DATA: Mapping[Trait, str] = {"data": "the method has all data in one place", **_ONE_MODEL}
_CLASSES = "classification or binary, another algorithm, or migration.detector 'none'"
_ON_UPDATES = "an attack on updates"

FEATURES: tuple[Feature, ...] = (
    PRIVACY,
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
        (Excluded("train.over_selection", "the size of a cohort varies by itself", "1", (1,)),),
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
        why="nothing depends on them",
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
        of_traits(
            "task.kind",
            _CLASSES,
            {"no_classes": "the method counts the classes of its clients' samples"},
        ),
        traits=("class_labels",),
    ),
    Feature(
        "with migration",
        {},
        of_traits(
            "task.kind",
            _CLASSES,
            {"no_classes": "migration compares the classes of its clients' samples"},
        ),
        traits=("migrates",),
    ),
    Feature(
        "with a method that mixes models",
        {},
        of_traits(
            "task.kind",
            "'classification'",
            {"no_probabilities": "the method mixes probabilities of classes"},
        ),
        traits=("mixture",),
    ),
    # --- attackers that change their samples
    Feature(
        "with changed labels",
        {},
        of_traits("attack.kind", _ON_UPDATES, {"no_classes": "changes labels of classes"}),
        traits=("poisons",),
    ),
    Feature(
        "with attackers that change their data",
        {},
        (
            # What a client holds may belong to an honest one in the next round.
            Excluded("shift", "attackers change their data once, before the first round"),
            *of_traits(
                "attack.kind",
                f"{_ON_UPDATES}, or lazy = false in [data]",
                {"lazy": "attackers change their data"},
            ),
        ),
        traits=("changes_data",),
    ),
    # --- data that are made client by client
    Feature(
        "with lazy data",
        {},
        (
            Excluded("train.hold_out", "needs all samples at once", "lazy = false in [data]"),
            Excluded("evaluate.validation", "needs all samples at once", "lazy = false in [data]"),
            # It exchanges samples between clients, so it would have to make and keep those of all.
            Excluded("shift", "needs all samples at once", "lazy = false in [data]"),
            *of_traits(
                "algorithm.name",
                "lazy = false in [data]",
                {"data": "needs all samples at once"},
            ),
        ),
        traits=("lazy",),
    ),
)
