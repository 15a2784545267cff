"""What a deployment is told besides the run's configuration: ``deploy.toml``, and what a server
gets of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from coterie.config import RunConfig
from coterie.config import check as check_config
from coterie.config.arguments import check_arguments
from coterie.config.reading import read
from coterie.errors import ConfigError
from coterie.runs.prepare import read_samples

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
OWN = "nodes"  # data.source of clients that hold their own data


@dataclass(frozen=True, slots=True)
class Settings:
    """How a federation is reached and awaited.

    Args:
        clients: the most that ever take part, ``N``.
        shape: of one input.
        classes: the names of the classes, in order.
        min_clients: that many have to be there for a round.
        longest_wait: seconds that a round waits for them.
        reply_wait: seconds that clients have for an answer; more than 60, after which Flower gives
            up a dead node.
        most_samples: a client that claims more is refused.
        superlink: ``host:port`` of the SuperLink.
        root_certificates: file of the authority that signed its certificate.
        folder: of the runs, on the SuperLink's machine.

    Raises:
        ConfigError: for a value out of its range.
    """

    clients: Count
    shape: tuple[Count, ...]
    classes: tuple[str, ...]
    min_clients: Count = 1
    longest_wait: Seconds = 600.0
    reply_wait: Seconds = 300.0
    most_samples: Seconds = 1e9
    superlink: str = "127.0.0.1:18001"
    root_certificates: str = "keys/ca.crt"
    folder: str = "runs"

    def __post_init__(self) -> None:
        check_arguments(Settings, asdict(self))
        if self.min_clients > self.clients:
            what = f"more clients than there are, got {self.min_clients}"
            raise ConfigError(
                f"deploy.toml: min_clients: {what}; expected at most {self.clients} (clients)"
            )

    @classmethod
    def of(cls, tables: Mapping[str, Any], file: str = "deploy.toml") -> Settings:
        """From the table of a file.

        Raises:
            ConfigError: for an unknown key, or one that is missing.

        Example:
            >>> Settings.of({"clients": 6, "shape": [1, 8, 8], "classes": ["cat", "dog"]}).min_clients
            1
        """
        known = [field.name for field in fields(cls)]
        wrong = [
            f"{file}: {name}: unknown key; expected one of {', '.join(known)}"
            for name in tables
            if name not in known
        ]
        wrong += [
            f"{file}: {name}: missing; expected a value" for name in known[:3] if name not in tables
        ]
        if wrong:
            raise ConfigError("\n".join(wrong))
        lists = {
            name: tuple(tables[name])
            for name in ("shape", "classes")
            if isinstance(tables[name], list)
        }
        try:
            return cls(**{**tables, **lists})
        except ConfigError as error:
            raise ConfigError(
                "\n".join(f"{file}: {line}" for line in str(error).splitlines())
            ) from None

    def dumps(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> Settings:
        """From JSON."""
        return cls.of(json.loads(text))


def load(folder: Path, overrides: Sequence[str] = ()) -> tuple[RunConfig, Settings]:
    """The configuration and the settings of a deployment's folder.

    Raises:
        ConfigError: with all that is wrong.
    """
    from coterie.config.reading import put

    for name in ("run.toml", "deploy.toml", "pyproject.toml"):
        if not (folder / name).is_file():
            raise ConfigError(
                f"{folder}: no {name}, got none; expected a folder made by `coterie deploy init`"
            )
    tables = read(folder / "run.toml")
    for override in overrides:
        put(tables, override)
    return check_config(tables, str(folder / "run.toml")), Settings.of(
        read(folder / "deploy.toml"), str(folder / "deploy.toml")
    )


def known_of(config: RunConfig) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Shape of an input and names of the classes of a configuration's data."""
    if config.data.source == OWN:
        given = config.options("source")
        return tuple(given["shape"]), tuple(given["classes"])
    samples = read_samples(config)
    names = tuple(samples.label_names) or tuple(map(str, range(samples.classes)))
    return tuple(samples.x.shape[1:]), names
