"""Expected failures: one line for the user, and the exit code of the command line."""

from __future__ import annotations


class CoterieError(Exception):
    """An expected failure: one line for the user, and the exit code of the command line."""

    code = 70


class ConfigError(CoterieError):
    """The configuration, or an argument, cannot be used."""

    code = 2


class DataError(CoterieError):
    """The data cannot be read, or do not hold what was asked of them."""

    code = 3


class CheckpointError(CoterieError):
    """No valid checkpoint, or one of another configuration."""

    code = 4


class QuorumError(CoterieError):
    """Too few clients answered for too long."""

    code = 5


class RemoteError(CoterieError):
    """A run elsewhere failed, or could not be reached."""

    code = 7


class SweepError(CoterieError):
    """Some runs of a sweep failed; the others are done."""

    code = 8
