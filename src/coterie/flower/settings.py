"""``deploy.toml``: what a deployment needs besides the run's configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from coterie.config.arguments import check_record
from coterie.config.problems import problems
from coterie.config.schema import table_of
from coterie.config.toml_text import put, read
from coterie.data.sources.files import ColumnOption, DataForm
from coterie.data.tabular.raw import Encode
from coterie.errors import ConfigError, Problem
from coterie.experiment import Experiment, check
from coterie.experiment.defaults import fit_cohort
from coterie.experiment.objects import make_choice
from coterie.files import MALFORMED, read_json
from coterie.runs.data import read_samples
from coterie.runs.folder.digests import CONFIG
from coterie.tasks import Multilabel

# --- deploy.toml ----------------------------------------------------------------------------------

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Samples = Annotated[float, Field(gt=0)]  # not a whole number, so that a file may say 1e9
NODES_SOURCE = "nodes"  # `data.source` of clients that hold their own data
LAST_RUN = "last-run.json"  # where the last run of a deployment is, and for how many clients
APP = ("coterie.flower.app:server", "coterie.flower.app:client")  # as pyproject.toml names them


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSettings(DataForm):
    """How a federation is reached, how long the server waits for it, and the form of its samples.

    Args:
        clients: how many clients are expected: defaults follow from it. Others may join later.
        min_clients: a round begins when this many are connected that can train.
        start_clients: the first round waits for this many, of a new run and of one that is resumed;
            it then begins with ``min_clients``. ``None``: for ``min_clients``.
        longest_wait: seconds that a round waits for them.
        reply_wait: seconds that clients have for an answer; better more than 60, the time after
            which Flower gives up a node that died.
        most_samples: a client that claims more samples is refused.
        superlink: ``host:port`` where runs are started; nodes connect to nginx.
        root_certificates: file of the authority that signed its certificate.
        folder: the folder of the runs, on the SuperLink's machine.
    """

    clients: Count
    min_clients: Count = 1
    start_clients: Count | None = None
    longest_wait: Seconds = 600.0
    reply_wait: Seconds = 300.0
    most_samples: Samples = 1e9
    superlink: str = "127.0.0.1:18101"
    root_certificates: str = "keys/ca.crt"
    folder: str = "runs"

    def __post_init__(self) -> None:
        check_record(self)
        if self.min_clients > self.clients:
            expected = f"at most {self.clients} (clients)"
            raise ConfigError(
                "out-of-range", "min_clients", found=self.min_clients, allowed=expected
            )
        if bool(self.shape) == bool(self.columns):
            what = "both a shape and columns" if self.shape else "neither a shape nor columns"
            raise ConfigError("in-conflict", "shape", what, do="set exactly one of them")

    @property
    def form(self) -> DataForm:
        """What the samples of all clients have in common."""
        return DataForm(**{one.name: getattr(self, one.name) for one in fields(DataForm)})

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
        return cls.of(read_json(text))


def load_deployment(
    folder: Path, overrides: Sequence[str] = (), *, resume: bool = False
) -> tuple[Experiment, DeploymentSettings]:
    """The configuration and the settings of a deployment's folder, for a new run or to ``resume``
    the last one."""
    # Flower reads `pyproject.toml` itself, and would say less clearly that it is missing.
    for name in ("run.toml", "deploy.toml", "pyproject.toml"):
        if not (folder / name).is_file():
            expected = "a folder from `coterie deploy init`"
            raise ConfigError("not-found", folder, f"no {name}", allowed=expected)
    file = folder / "pyproject.toml"
    text = file.read_text(encoding="utf-8", errors="replace")
    if not all(part in text for part in APP):
        wanted = "serverapp = {!r} and clientapp = {!r}".format(*APP)
        what = "names the app of a different version of Coterie"
        raise ConfigError("differs", file, what, do=f"write {wanted}")
    run_file = folder / "run.toml"
    tables = read(run_file)
    begun = _last_run(folder) if resume else {}
    # The rounds to which a run was extended, where its folder is on this machine.
    with suppress(ConfigError, OSError, *MALFORMED):
        rounds = read(Path(begun["out"]) / CONFIG)["train"]["rounds"]
        train = tables.setdefault("train", {})
        train["rounds"] = max(rounds, train.get("rounds", 0))
    for override in overrides:
        put(tables, override)
    settings_file = folder / "deploy.toml"
    settings = DeploymentSettings.of(read(settings_file), str(settings_file))
    # The defaults of a run follow from the number of clients that it began with.
    clients = settings.clients
    with suppress(ValueError, TypeError):
        clients = int(begun.get("clients") or clients)
    return fit_cohort(check(tables, str(run_file)), clients), settings


def _last_run(folder: Path) -> Mapping[str, Any]:
    """What is noted of a deployment's last run; nothing where that is not known."""
    with suppress(OSError, *MALFORMED):
        found = read_json(folder / LAST_RUN)
        if isinstance(found, dict):
            return found
    return {}


def form_of(config: Experiment) -> DataForm:
    """What the samples of a configuration have in common."""
    if config.name("source") == NODES_SOURCE:
        options = config.options("source")
        return DataForm(**{one.name: options[one.name] for one in fields(DataForm)})
    # The shape of samples is in no configuration, so the data are read.
    encode = table_encoding(config)
    samples = read_samples(config)
    shape = tuple(samples.x.shape[1:])
    columns: dict[str, ColumnOption] = {}
    if samples.table is not None:
        shape = ()
        columns = {
            column.name: list(column.categories) if column.kind == "category" else column.kind
            for column in samples.table.columns
        }
        # Sources with a name have their own ways, which nodes do not know. What they leave out is not
        # among the columns.
        own = samples.table.encode.model_copy(update={"leave_out": encode.leave_out})
        if samples.table.past is not None or own != encode:
            got = config.name("source")
            what = "encodes columns itself"
            raise ConfigError("does-not-fit", "data.source", what, got=got, allowed="'file'")
    names = tuple(samples.label_names)
    classes = samples.classes
    if isinstance(make_choice(config, "task"), Multilabel):
        classes = samples.y.shape[1]
    # Tokens are counted by nobody; a network needs to know how many there are.
    elif not classes and not samples.y.is_floating_point():
        classes = int(samples.y.max()) + 1
    if not names:
        names = tuple(map(str, range(classes)))
    missing = config.options("source").get("missing") or ()
    return DataForm(
        shape,
        names,
        target_shape=tuple(samples.y.shape[1:]),
        features=_named_inputs(config, shape),
        columns=columns,
        missing=tuple(missing),
    )


def _named_inputs(config: Experiment, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The columns of numbers that are the inputs of a file; none for another source or a table."""
    features = config.options("source").get("features")
    if shape and config.name("source") == "file" and isinstance(features, list):
        return tuple(features)
    return ()


def table_encoding(config: Experiment) -> Encode:
    """How the columns of a table become numbers."""
    encode: Encode = config.options("source").get("encode") or Encode()
    return encode
