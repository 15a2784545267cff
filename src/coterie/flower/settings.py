"""``deploy.toml``: what a deployment needs besides the run's configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from coterie.config.arguments import check_record
from coterie.config.problems import problems
from coterie.config.schema import table_of
from coterie.config.toml_text import put, read
from coterie.data.sources.files import ColumnOption
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.raw import Column, Encode
from coterie.errors import ConfigError, Problem
from coterie.experiment import Experiment, check
from coterie.experiment.defaults import fit_cohort
from coterie.experiment.objects import make_choice
from coterie.runs.data import read_samples
from coterie.tasks import Multilabel


@dataclass(frozen=True, slots=True)
class DataForm:
    """What the samples of all clients have in common.

    Args:
        classes: none where targets are numbers.
        target_shape: of the targets of one sample; ``()`` for a single label or number.
        columns: of tables of which inputs are made; the shape follows from reports of the clients.
        features: columns of numbers that are the inputs, in their order.

    Example:
        >>> DataForm((8,), ("cat", "dog")).targets(3).dtype, DataForm((8,), (), (2,)).targets(3).shape
        (torch.int64, torch.Size([3, 2]))
    """

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    target_shape: tuple[int, ...] = ()
    columns: tuple[Column, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def numbers(self) -> bool:
        """Whether targets are numbers, and not labels or tokens."""
        return not self.classes

    def targets(self, n: int) -> Tensor:
        """Zeros in the form of the targets of ``n`` samples, float32 or int64 ``[n, ...]``."""
        dtype = torch.float32 if self.numbers else torch.int64
        return torch.zeros(n, *self.target_shape, dtype=dtype)

    def encoded(self, encoder: Encoder) -> DataForm:
        """The form of the inputs that are made of the columns."""
        return replace(self, shape=(len(encoder.features),))


# --- deploy.toml ----------------------------------------------------------------------------------

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Samples = Annotated[float, Field(gt=0)]  # not a whole number, so that a file may say 1e9
NODES_SOURCE = "nodes"  # `data.source` of clients that hold their own data


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """How a federation is reached, and how long the server waits for it.

    Args:
        clients: the most clients that ever take part, ``N``.
        shape: of one input.
        classes: the names of the classes, or of the tokens, in order; none where targets are numbers.
        target_shape: of the targets of a sample, where there are several.
        columns: of a table, by name: ``number``, ``boolean``, ``time``, or a list of categories. The
            shape is ``()`` then, since the inputs are made of them.
        features: the columns of numbers that are the inputs, in their order, where the data of nodes
            have a column for each; names are compared, and no places.
        min_clients: a round begins when this many are connected.
        longest_wait: seconds that a round waits for them.
        reply_wait: seconds that clients have for an answer; better more than 60, the time after
            which Flower gives up a node that died.
        most_samples: a client that claims more samples is refused.
        superlink: ``host:port`` where runs are started; nodes connect to nginx.
        root_certificates: file of the authority that signed its certificate.
        folder: of the runs, on the SuperLink's machine.
    """

    clients: Count
    shape: tuple[Count, ...]
    classes: tuple[str, ...]
    target_shape: tuple[Count, ...] = ()
    min_clients: Count = 1
    longest_wait: Seconds = 600.0
    reply_wait: Seconds = 300.0
    most_samples: Samples = 1e9
    superlink: str = "127.0.0.1:18101"
    root_certificates: str = "keys/ca.crt"
    folder: str = "runs"
    columns: dict[str, ColumnOption] = field(default_factory=dict)
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_record(self)
        if self.min_clients > self.clients:
            what = f"more clients than there are, got {self.min_clients}"
            expected = f"at most {self.clients} (clients)"
            raise ConfigError(f"min_clients: {what}; expected {expected}")
        if bool(self.shape) == bool(self.columns):
            what = f"inputs have a shape or columns, got {list(self.shape)} and {len(self.columns)}"
            raise ConfigError(f"shape: {what} columns; expected one of the two")

    @property
    def form(self) -> DataForm:
        """What the samples of all clients have in common."""
        columns = tuple(_column(name, kind) for name, kind in self.columns.items())
        return DataForm(self.shape, self.classes, self.target_shape, columns, self.features)

    @classmethod
    def of(cls, tables: Mapping[str, Any], file: str = "deploy.toml") -> DeploymentSettings:
        """From what a file holds."""
        model = table_of(cls)
        found: Iterable[Problem] = ()
        try:
            made: DeploymentSettings = model.model_validate(tables).made()
            return made
        except ValidationError as error:
            found = problems(error, tables, model)
        except ConfigError as error:
            found = error.problems
        raise ConfigError.of(found).located(file)

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> DeploymentSettings:
        return cls.of(json.loads(text))


def _column(name: str, kind: ColumnOption) -> Column:
    if isinstance(kind, list):
        return Column(name, "category", tuple(sorted(kind)))
    return Column(name, kind)


def load_deployment(
    folder: Path, overrides: Sequence[str] = ()
) -> tuple[Experiment, DeploymentSettings]:
    """The configuration and the settings of a deployment's folder."""
    # Flower reads `pyproject.toml` itself, and would say less clearly that it is missing.
    for name in ("run.toml", "deploy.toml", "pyproject.toml"):
        if not (folder / name).is_file():
            expected = "a folder made by `coterie deploy init`"
            raise ConfigError(f"{folder}: no {name}; expected {expected}")
    run_file = folder / "run.toml"
    tables = read(run_file)
    for override in overrides:
        put(tables, override)
    settings_file = folder / "deploy.toml"
    settings = DeploymentSettings.of(read(settings_file), str(settings_file))
    return fit_cohort(check(tables, str(run_file)), settings.clients), settings


def require_cohort(config: Experiment, clients: int) -> None:
    """Refuse to ask more clients in a round than there are."""
    per_round = config.train.clients_per_round
    if per_round > clients:
        what = f"more than there are clients, got {per_round}"
        expected = f"at most {clients} (deploy.toml: clients)"
        raise ConfigError(f"train.clients_per_round: {what}; expected {expected}")


def form_of(config: Experiment) -> DataForm:
    """What the samples of a configuration have in common."""
    if config.name("source") == NODES_SOURCE:
        options = config.options("source")
        target_shape = tuple(options.get("target_shape", ()))
        kinds = options.get("columns") or {}
        named = tuple(_column(name, kind) for name, kind in kinds.items())
        features = tuple(options.get("features") or ())
        shape = tuple(options["shape"])
        return DataForm(shape, tuple(options["classes"]), target_shape, named, features)
    # The shape of samples is in no configuration, so the data are read.
    encode = check_encoding(config)
    samples = read_samples(config)
    shape = tuple(samples.x.shape[1:])
    columns: tuple[Column, ...] = ()
    if samples.table is not None:
        shape = ()
        columns = samples.table.columns
        # Sources with a name have their own ways, which nodes do not know. What they leave out is not
        # among the columns.
        own = samples.table.encode.model_copy(update={"leave_out": encode.leave_out})
        if samples.table.past is not None or own != encode:
            raise ConfigError(
                f"data.source: encodes columns in a way of its own, got {config.name('source')!r}; "
                "expected 'file'"
            )
    names = tuple(samples.label_names)
    classes = samples.classes
    if isinstance(make_choice(config, "task"), Multilabel):
        classes = samples.y.shape[1]
    # Tokens are counted by nobody; a network needs to know how many there are.
    elif not classes and not samples.y.is_floating_point():
        classes = int(samples.y.max()) + 1
    if not names:
        names = tuple(map(str, range(classes)))
    return DataForm(shape, names, tuple(samples.y.shape[1:]), columns, _named_inputs(config, shape))


def _named_inputs(config: Experiment, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The columns of numbers that are the inputs of a file; none for another source or a table."""
    features = config.options("source").get("features")
    if shape and config.name("source") == "file" and isinstance(features, list):
        return tuple(features)
    return ()


def check_encoding(config: Experiment) -> Encode:
    """How the columns of a table become numbers."""
    options = config.options("source")
    if options.get("window") is not None:
        what = "nodes make no series of tables so far, got a window"
        raise ConfigError(f"data.window: {what}; expected none")
    encode: Encode = options.get("encode") or Encode()
    if encode.noise is not None:
        what = f"nodes describe columns without noise so far, got {encode.noise:g}"
        raise ConfigError(f"data.encode.noise: {what}; expected none")
    return encode
