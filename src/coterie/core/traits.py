"""What the parts of a run are and need, as traits, and features of a run that do not work together.

Each feature declares once what it does not work with, with the words for the user. What is refused
is one loop over these declarations, for configurations, Python and deployments alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from coterie.config.toml_text import value_at
from coterie.errors import ConfigError, Problem, shown

# What a method needs of single clients, apart from the sums of their updates: updates of a training
# that an assign rule asks for, before the first groups or of newcomers; that models pass from client
# to client; what clients say of their data; all of their data; targets that are classes, since some
# rule counts them; or that all clients can be asked in each round, of which the rule takes a sample.
Need = Literal["start", "newcomers", "chains", "statistics", "data", "class_labels", "all_clients"]
# When the server needs the updates of single clients, and not only the sum of each group's.
Occasion = Literal[
    "start", "newcomers", "chains", "data", "grouping", "second_vector", "weights", "shares"
]
Trait = (
    Need
    | Occasion
    | Literal[
        "own_step",  # nothing is known of what it does
        "migrates",
        "places_nobody",  # in groups
        "regroups",  # by the updates of a round
        "moves_second_vector",  # a second vector, by the updates of a round
        "reads_clients",  # more than sums of their updates, of which no noised form is known
        "starts_privately",  # its first groups can be made of noised sums
        "counts_groups",  # by the clients of its cold start
        "compares_pairs",  # of clients in its cold start
        "draws_centres",  # of groups, among the clients of its cold start
        "leaves_out",  # of its cold start, whom others are unlike
        "weighs_unevenly",  # or combines replies in its own way
        "sums_of_a_round",  # with noise, or as secure aggregation computes them
        "mixture",
        "groups_late",  # no client has a group of several before it trains
        "plain_steps",  # clients take steps that are written for plain SGD
        "whole_loss",  # its objective is no addition to the loss of the task
        "full_gradient",
        "phases",
        "own_model",
        "keeps_layers",
        "uploads_a_part",
        "no_classes",  # of a task: its targets are none
        "no_probabilities",  # of a task: it predicts none of classes
        "no_smoothing",  # of a task: it has no labels to smooth
        "poisons",  # of an attack: changes samples
        "changes_data",  # of an attack: attackers train on other data than they hold
        "lazy",  # of data: made client by client
        "running_statistics",  # of a network: a forward pass changes them
        "moving_buffers",  # of a network: sent and averaged, and not trained
    ]
)


class Excluded(NamedTuple):
    """What a feature does not work with: values of a key, or a trait.

    Args:
        path: the path of a table or a key.
        why: it does not.
        instead: what may stand there, in words.
        allowed: values of the key that work; without any the key may not be set. ``None``: all do.
        trait: that it does not work with either, whatever the key says.
    """

    path: str
    why: str
    instead: str = "none"
    allowed: tuple[Any, ...] | None = ()
    trait: Trait | None = None

    def refuses(self, value: Any) -> bool:
        """Whether a value of the key does not work."""
        return self.allowed is not None and value is not None and not _is_in(value, self.allowed)


def of_traits(path: str, instead: str, forbids: Mapping[Trait, str]) -> tuple[Excluded, ...]:
    """Traits that do not work with a feature, and why, with the key of the error line."""
    return tuple(Excluded(path, why, instead, None, trait) for trait, why in forbids.items())


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that a run can have, and what it does not work with.

    Args:
        where: what it is, in words: "with [privacy]".
        keys: that a run with the feature sets, and the values that count, which may be in a list;
            without any all do but false and 0.
        excludes: traits that it excludes; errors name the first of several.
        traits: the traits that parts of a run with the feature have.
        needs: keys of which one has to be set, and the values that do not count.
        why: it needs one of them.
        instead: what may stand there otherwise, in words.
    """

    where: str
    keys: Mapping[str, tuple[Any, ...]]
    excludes: tuple[Excluded, ...] = ()
    traits: tuple[Trait, ...] = ()
    needs: Mapping[str, tuple[Any, ...]] | None = None
    why: str = ""
    instead: str = ""

    def conflicts(self, tables: Mapping[str, Any], traits: Mapping[Trait, Any]) -> list[Problem]:
        """What of a run with the feature does not work with it."""
        found = []
        named = False
        for one in self.excludes:
            value = value_at(tables, one.path.split("."))
            if one.refuses(value):
                instead = f"{one.instead} {self.where}"
                found.append(Problem("in-conflict", one.path, one.why, shown(value), instead))
            elif one.trait is not None and one.trait in traits and not named:
                named = True
                got = traits[one.trait]
                # A line that names a key shows its value; of a table there is none.
                if isinstance(value, bool | int | float | str | list):
                    got = value
                found.append(_by_trait(one, got, self.where))
        if self.needs is not None and not _any_set(tables, self.needs):
            path = next(iter(self.keys))
            got = shown(value_at(tables, path.split(".")))
            found.append(Problem("in-conflict", path, self.why, got, self.instead))
        return found

    def refusal(self, trait: Trait, name: str) -> ConfigError:
        """The refusal of what is called ``name`` for a trait that is excluded."""
        one = next(one for one in self.excludes if one.trait == trait)
        return ConfigError.of([_by_trait(one, name, self.where)])

    def is_on(self, tables: Mapping[str, Any], traits: Collection[Trait]) -> bool:
        """Whether a run has the feature."""
        for path, values in self.keys.items():
            if not _counts(value_at(tables, path.split(".")), values):
                return False
        return all(trait in traits for trait in self.traits)


def holding(found: Mapping[Trait, bool]) -> frozenset[Trait]:
    """The traits of which it is said that they hold."""
    return frozenset(trait for trait, holds in found.items() if holds)


def conflicts(
    features: Iterable[Feature], tables: Mapping[str, Any], traits: Mapping[Trait, Any]
) -> list[Problem]:
    """What of a run does not work together, one problem for each key.

    Args:
        tables: the tables of its experiment, validated or not.
        traits: the traits of its parts, each with the name of the part.
    """
    found: dict[str, Problem] = {}
    for feature in features:
        if feature.is_on(tables, traits):
            for problem in feature.conflicts(tables, traits):
                found.setdefault(problem.path, problem)
    return list(found.values())


def refuse_traits(excludes: Iterable[Excluded], traits: Collection[Trait], name: str) -> None:
    """Refuse what is called ``name`` for the first of its traits that is excluded.

    Raises:
        ConfigError: naming the reason.
    """
    for one in excludes:
        if one.trait in traits:
            raise ConfigError.of([_by_trait(one, name, "")])


def _counts(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether a value of a key is one of those that count."""
    if not values:
        return value is not None and not _is_in(value, (0,))
    if isinstance(value, list):
        return any(_is_in(one, values) for one in value)
    return _is_in(value, values)


def _is_in(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether a value is one of these: objects, such as arrays, compare as they like."""
    return isinstance(value, str | int | float | list | tuple) and value in values


def _by_trait(one: Excluded, name: Any, where: str) -> Problem:
    instead = one.instead
    # What is expected of the key is so with the feature; of the part it says all there is.
    if one.allowed is not None:
        instead = f"{instead} {where}"
    return Problem("does-not-fit", one.path, one.why, shown(name), instead)


def _any_set(tables: Mapping[str, Any], keys: Mapping[str, tuple[Any, ...]]) -> bool:
    values = ((value_at(tables, path.split(".")), off) for path, off in keys.items())
    return any(value is not None and not _is_in(value, off) for value, off in values)
