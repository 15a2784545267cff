"""Would grouping help on these data? A few rounds of probing, and an answer with its evidence."""

from coterie.studies.advise.decision import Advice, advise

__all__ = ["Advice", "advise"]
