"""What the advice rests on, a sentence each."""

from __future__ import annotations

from coterie.headline import ACCURACY
from coterie.studies.advise.answer import Advice
from coterie.studies.advise.decision import FORCED_GROUPS
from coterie.studies.advise.differences import describe_differences
from coterie.studies.advise.scoreboard import kinds_of, method_scores
from coterie.studies.advise.wording import margin_text, points_text, probe_text


def evidence(advice: Advice) -> list[str]:
    """What the advice rests on, a sentence each."""
    lines = [probe_text(advice.found)]
    if advice.found.groups > 1:
        lines += [_differences(advice), margin_text(advice.found)]
    elif advice.verdict == "one group":
        lines.append(
            f"A split into {FORCED_GROUPS} groups gave no gain that is larger than its uncertainty."
        )
    # Without a shift in the configuration FlexCFL was not tried: there it equals FedGroup.
    if advice.verdict == "helps" and advice.best.name != "flexcfl":
        lines.append(
            "If clients' data change as time goes by, take flexcfl: its clients move to another "
            "group when their data do."
        )
    lines.append(_alone(advice))
    # Published scores are accuracies of classes.
    if advice.best.headline == ACCURACY:
        kinds = kinds_of(advice.found.groups, advice.differing)
        lines += [method_scores(kind).text for kind in kinds]
    return lines


def _alone(advice: Advice) -> str:
    """How training alone does in the same rounds, and whether it is better."""
    found = advice.over_alone
    reached = advice.alone.headline.text(advice.alone.score)
    text = f"Every client for itself reached {reached}; {advice.best.name} gained "
    text += f"{points_text(found)} over that."
    if found.mean + found.half < 0:
        text += " So clients do better alone than with any method tried."
    return text


def _differences(advice: Advice) -> str:
    return describe_differences(advice.differing, classes=bool(advice.population.classes))
