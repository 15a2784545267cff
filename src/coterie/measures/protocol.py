"""What a score is of: which model, which clients, which samples, after what.

Every table of scores says it by `Way.protocol`, since the same word, accuracy, stands for different
figures in different papers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.config.schema import table_of
from coterie.headline import Headline
from coterie.measures.own_models import Adaptation


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which clients are scored: its title in sentences and heads of columns, what its
    figures are called in rows, and which model, clients and samples it takes."""

    title: str
    headline: Headline
    protocol: str

    @property
    def name(self) -> str:
        """The title, and that of the headline for the usual way."""
        return self.title or self.headline.title


def ways_of(
    resolved: Mapping[str, Any], headline: Headline, kept: Sequence[str] = ()
) -> tuple[Way, ...]:
    """The ways in which the clients of a run are scored, the usual one first.

    Args:
        kept: layers that stay with their client; by default those of ``[personal]``.

    Example:
        >>> tables = {"evaluate": {"adapt": {"epochs": 1, "layers": ["head"]}}}
        >>> for way in ways_of(tables, Headline()):
        ...     print(f"{way.name}: {way.protocol}")
        accuracy: clients that have a group, each on its own test samples with the model that serves it, not trained further
        adapted: the same clients and samples, with a copy of that model after 1 epoch on its own training samples, of head alone
    """
    evaluate: Mapping[str, Any] = resolved.get("evaluate", {})
    adapt = evaluate.get("adapt")
    kept = kept or resolved.get("personal", {}).get("layers", ())
    own = f", its own layers ({', '.join(kept)}) in it," if kept else ","
    tested = _tested_on(evaluate.get("validation"))
    served = f"clients that have a group, each on {tested} with the model that serves it"
    found = [Way("", headline, f"{served}{own} not trained further")]
    adapted = ""
    if adapt is not None:
        adaptation = table_of(Adaptation).model_validate(adapt).made()
        adapted = f"a copy of that model after {adaptation.text}"
        said = f"the same clients and samples, with {adapted}"
        found.append(_way("adapted", headline, said))
    if evaluate.get("local"):
        said = (
            f"clients that ever trained, each on {tested} with the network that its last training "
        )
        said += "left"
        found.append(_way("last local network", headline, said))
    if evaluate.get("unseen") is not None:
        said = "clients that never train, placed as the method places newcomers, each on "
        if evaluate.get("unseen_labels") is False:
            said = "clients that never train, placed by their inputs without labels, each on "
        said += f"{tested} with the model that serves its group, not trained further"
        found.append(_way("unseen", headline, said))
        if adapt is not None:
            said = f"the same clients that never train, with {adapted}"
            found.append(_way("unseen adapted", headline, said))
    if evaluate.get("training"):
        said = "clients that have a group, each on its own training samples with the model that serves "
        said += f"it{own} not trained further"
        found.append(_way("training", headline, said))
    return tuple(found)


def _tested_on(validation: float | None) -> str:
    if validation is None:
        return "its own test samples"
    return f"{100 * validation:g} % of its training samples, which it does not train on,"


def _way(title: str, headline: Headline, protocol: str) -> Way:
    key = headline.keys.others[title].value
    # The label is that of the usual way, whose unit and direction it has.
    return Way(title, replace(headline, name=key, label=headline.title), protocol)
