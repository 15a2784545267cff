"""A statistic of its data that a client is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import CheckedFields
from coterie.core.arrays import FloatArray
from coterie.core.solver import Solver

# A privacy budget. A smaller one asks for more noise than whole numbers hold.
Epsilon = Annotated[float, Field(ge=1e-6)]


@dataclass(frozen=True, slots=True)
class Describe(CheckedFields):
    """A statistic of the client's training data, which is sent to the server.

    - ``histogram``: its label histogram ``[c]``.
    - ``subspace``: per class the first ``vectors`` left singular vectors of its samples,
      ``[features, vectors * c]``; columns of classes it does not hold, or has too few samples of,
      are zero (PACFL).
    - ``centres``: the ``vectors`` k-means centres of its inputs, and the share of its samples that
      each represents, ``[vectors, features + 1]``; rows that it has too few samples for are zero
      (k-FED).
    - ``imbalance``: the number ``sum_m |level - D_m|`` over its class counts ``D_m`` (RFedAvg eq.
      17).
    - ``latent``: the mean and the standard deviation of its samples in the latent space of the
      model that it is sent, of all samples and of each class, in ``vectors`` random directions,
      ``[2 + 2c, vectors]`` (FLUX). With no classes, labels are not read. With ``draws``, that many
      random halves of its samples are described, which are drawn again for each request.
    - ``columns``: for each column of its table, the number of values, their mean and the sum of
      squared deviations from it, or the count of each category (``coterie.data.tabular.reports``).

    ``centres``, ``latent`` with no classes and ``subspace`` with one class can be requested from a
    client whose samples have no labels: all samples are described together, and no label is read.

    Args:
        statistic: the name of the statistic.
        classes: number of classes ``c``.
        features: values of one sample (``subspace``, ``centres``), or of a report (``columns``).
        vectors: singular vectors per class (``subspace``), centres (``centres``), or directions
            (``latent``).
        draws: number of random halves of the samples (``latent``); 0: all samples.
        level: samples per class in a balanced federation, ``D / M`` (``imbalance``).
        labelled: whether labels may be read; ``False``: the inputs alone are described.
        privacy: how a histogram is made private: ``discrete_laplace`` noise on every count, or the
            dominant class only, by ``randomised_response``. The noise is drawn once per client and
            kept.
        epsilon: privacy budget.

    Raises:
        ConfigError: for a budget out of its range.
    """

    statistic: Literal["histogram", "subspace", "centres", "latent", "imbalance", "columns"] = (
        "histogram"
    )
    classes: Annotated[int, Field(ge=0)] = 0
    features: int = 0
    vectors: int = 0
    draws: int = 0
    level: float = 0.0
    labelled: bool = True
    privacy: Literal["none", "discrete_laplace", "randomised_response"] = "none"
    epsilon: Epsilon = 1.0

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """None."""
        return 0

    @property
    def needs_model(self) -> bool:
        """Whether the client describes its data with a model."""
        return self.statistic == "latent"

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        shape = {
            "histogram": (self.classes,),
            "subspace": (self.features, self.vectors * self.classes),
            "centres": (self.vectors, self.features + 1),
            "latent": (2 + 2 * self.classes, self.vectors),
            "imbalance": (),
            "columns": (self.features,),
        }[self.statistic]
        return {self.statistic: (shape, "f"), "size": ((), "f")}
