"""The kinds of things that a configuration can name, and where the factories of each stand.

Nothing is imported here: the shell waits for it while it completes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of choice.

    Args:
        module: the module that contains the table of factories.
        table: its name there.
        selector: the key that names the choice.
        place: the place of the table in a configuration.
        context: parameters that the library fills in; the others are options.
        custom: whether ``module:factory`` is also allowed.
        options_name_code: whether a text of its options may be ``module:factory``, too; not where it
            may be the name of a file or a column.
        custom_options: whether such a factory has options; a network's takes only what the data
            say.
        entry_points: the group of the plugins, none for an empty one.
        article: before the kind's name in a sentence.
    """

    module: str
    table: str
    selector: str = "name"
    place: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    custom: bool = False
    options_name_code: bool = True
    custom_options: bool = True
    entry_points: str = ""
    article: str = "a"

    @property
    def path(self) -> str:
        """The key path of the selector."""
        return ".".join([*self.place, self.selector])


KINDS: Mapping[str, Kind] = {
    "source": Kind(
        module="coterie.data.sources",
        table="SOURCES",
        selector="source",
        place=("data",),
        context=("root", "partition", "key", "targets", "frame"),
        custom=True,
        # A column may be called "a:b", and so may a file.
        options_name_code=False,
        entry_points="coterie.datasets",
    ),
    "partition": Kind(
        module="coterie.data.partitions",
        table="PARTITIONS",
        selector="kind",
        place=("data", "partition"),
        context=("samples", "key"),
    ),
    "model": Kind(
        module="coterie.models",
        table="MODELS",
        place=("model",),
        context=("shape", "classes", "key"),
        custom=True,
        custom_options=False,
        entry_points="coterie.models",
    ),
    "algorithm": Kind(
        module="coterie.algorithms",
        table="ALGORITHMS",
        place=("algorithm",),
        custom=True,
        entry_points="coterie.algorithms",
        article="an",
    ),
    "server": Kind(module="coterie.rules.server", table="SERVERS", place=("server",), custom=True),
    "weigh": Kind(module="coterie.rules.robust", table="WEIGHS", place=("weigh",), custom=True),
    "objective": Kind(
        module="coterie.objectives",
        table="OBJECTIVES",
        place=("objective",),
        custom=True,
        article="an",
    ),
    "own_model": Kind(
        module="coterie.algorithms",
        # Beside the methods that have them: an own model is part of its paper's file.
        table="OWN_MODELS",
        place=("own_model",),
        custom=True,
    ),
    "task": Kind(
        module="coterie.tasks", table="TASKS", selector="kind", place=("task",), custom=True
    ),
    "shift": Kind(module="coterie.data.shifts", table="SHIFTS", selector="kind", place=("shift",)),
    "attack": Kind(
        module="coterie.engines.attacks",
        table="ATTACKS",
        selector="kind",
        place=("attack",),
        article="an",
    ),
    "engine": Kind(
        module="coterie.engines.registry",
        table="ENGINES",
        place=("engine",),
        context=("simulation",),
        entry_points="coterie.engines",
        article="an",
    ),
    "measure": Kind(
        module="coterie.measures.optional",
        table="MEASURES",
        # No place and no options: measures are named in a list, ``train.measures``.
        context=("solver", "method"),
    ),
    # No place and no options: trackers are named in a list, ``log.to``.
    "tracker": Kind(
        module="coterie.runs.tracking", table="TRACKERS", context=("run",), custom=True
    ),
}
