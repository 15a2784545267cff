"""What a node did with a request, in a line for those who run it."""

from __future__ import annotations

import numpy as np

from coterie.clients.wire import Answer, Request
from coterie.core.describe import Describe
from coterie.core.work import Evaluate, SelectGroup, Train, Work
from coterie.terminal import counted


def work_line(request: Request, answer: Answer) -> str | None:
    """What a client did; ``None`` for a delivery, which has a line of its own.

    Example:
        >>> import torch
        >>> request = Request(Evaluate(), torch.zeros(1, 4), 2, "", 0, 0, 0, "", "", 0)
        >>> work_line(request, Answer({"size": np.array(52.0)}))
        'round 3: scored the model on 52 test samples'
    """
    samples = int(answer.fields.get("size", np.array(0.0)))
    done = _done(request.work, len(request.models), samples)
    if done is None:
        return None
    return f"round {request.round + 1}: {done}"


def _done(work: Work, models: int, samples: int) -> str | None:
    match work:
        case Train():
            return f"trained on {counted(samples, 'sample')}"
        case Evaluate():
            which = "the model" if models == 1 else f"{models} models"
            kind = {"train": "training sample", "test": "test sample"}[work.split]
            return f"scored {which} on {counted(samples, kind)}"
        case SelectGroup():
            return f"compared its update with those of {counted(models - 1, 'group')}"
        case Describe():
            # Without a number: a private statistic does not say how many samples it is of.
            return f"sent a statistic ({work.statistic})"
    return None
