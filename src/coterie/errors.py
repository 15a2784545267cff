"""Expected failures: what is wrong, as data and in words, and the exit code of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, time
from pathlib import Path
from typing import Any, Literal, Self, overload

# What can be wrong (docs/exit-codes.md says more of each).
Code = Literal[
    "unknown-key",
    "unknown-choice",
    "missing",
    "wrong-type",
    "wrong-shape",
    "out-of-range",
    "not-finite",
    "does-not-fit",
    "in-conflict",
    "not-found",
    "not-installed",
    "cannot-be-read",
    "cannot-be-written",
    "cannot-be-used",
    "damaged",
    "differs",
    "in-use",
    "not-trusted",
    "too-few",
    "over-budget",
    "unreachable",
    "failed",
    "other",
]
NO_VALUE: Any = object()  # None is a value
SHOWN_ITEMS = 8  # of a list in an error line
SHOWN_LENGTH = 80  # letters of a value in an error line


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, as data; its text is the line for the user.

    Args:
        path: the key, argument, option or file that the problem is about.
        what: a description of the problem, if that of the code is too general.
        got: a value, or what was found in words; ``None`` where there is neither.
        in_words: whether ``got`` explains ``what`` in words, instead of quoting a value.
        allowed: what is expected instead.
        do: what the user can do about it.
        hint: a name that may have been meant.
        file: the file that contains the key.
        of: what has the problem, of several that are checked together.

    Example:
        >>> print(Problem("unknown-key", "data.pth", got="3", allowed="one of path, root", hint="path"))
        data.pth: unknown key, got 3; expected one of path, root; did you mean 'path'?
        >>> print(Problem("not-installed", "server", "nginx is not installed", do="install it"))
        server: nginx is not installed: install it
        >>> print(Problem("in-use", "out", "the run is in progress", "process 12", in_words=True))
        out: the run is in progress (process 12)
    """

    code: Code
    path: str
    what: str = ""
    got: str | float | None = None
    allowed: str = ""
    do: str = ""
    hint: str | None = None
    file: str = ""
    of: str = ""
    in_words: bool = False

    @classmethod
    def read(cls, line: str, code: Code = "other") -> Problem:
        """The problem of a line that is written already, of which only the path is known."""
        path, colon, what = line.partition(": ")
        if not colon:
            return cls(code, "", line)
        return cls(code, path, what)

    def __str__(self) -> str:
        what = self.what or self.code.replace("-", " ")
        line = ": ".join(part for part in (self.file, self.path, what) if part)
        if self.got is not None:
            got = self.got if isinstance(self.got, str) else shown(self.got)
            line += f" ({got})" if self.in_words else f", got {got}"
        if self.allowed and self.got is None and self.code in ("missing", "not-found"):
            line += f": specify {self.allowed}"
        elif self.allowed:
            line += f"; expected {self.allowed}"
        if self.do:
            line += f": {self.do}"
        if self.hint:
            line += f"; did you mean '{self.hint}'?"
        if self.of:
            line += f" ({self.of})"
        return line


class CoterieError(Exception):
    """An expected failure, with one line for the user per problem and an exit code.

    Args:
        code: what is wrong; or, as the only argument, complete lines.
        path: the key, argument, option or file that the problem is about.
        what: a description of the problem, if that of the code is too general.
        got: the value.
        found: what was found, in words, if there is no value.
        allowed: what is expected instead.
        do: what the user can do about it.
        hint: a name that may have been meant.

    Attributes:
        problems: all problems.

    Example:
        >>> error = ConfigError("out-of-range", "algorithm.groups", got=13, allowed="1 to 12")
        >>> error.problems[0].code, error.problems[0].path
        ('out-of-range', 'algorithm.groups')
        >>> print(error)
        algorithm.groups: out of range, got 13; expected 1 to 12
    """

    # Scripts rely on these codes (docs/exit-codes.md). This one is EX_SOFTWARE of sysexits.h: an
    # error without a kind of its own is a bug of ours.
    code = 70
    of_lines: Code = "other"  # the code of lines that are written already
    problems: tuple[Problem, ...]

    @overload
    def __init__(self, lines: str, /) -> None: ...

    @overload
    def __init__(
        self,
        code: Code,
        path: object,
        what: str = ...,
        *,
        got: Any = ...,
        found: object = ...,
        allowed: object = ...,
        do: str = ...,
        hint: str | None = ...,
    ) -> None: ...

    def __init__(
        self,
        code: Any,
        path: Any = None,
        what: str = "",
        *,
        got: Any = NO_VALUE,
        found: object = "",
        allowed: object = "",
        do: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__()
        if path is None:
            self.problems = tuple(Problem.read(line, self.of_lines) for line in code.splitlines())
            return
        words = str(found) or None if got is NO_VALUE else shown(got)
        # Only with a description can words explain it.
        explains = bool(what and found) and isinstance(found, str | Exception)
        problem = Problem(code, str(path), what, words, str(allowed), do, hint, in_words=explains)
        self.problems = (problem,)

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> Self:
        """One error for several problems, each listed once."""
        error = cls.__new__(cls)
        error.problems = tuple(dict.fromkeys(problems))
        return error

    def located(self, file: str) -> Self:
        """The same error, with the file that it is about."""
        return self.of(replace(problem, file=file) for problem in self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:
        # It crosses processes.
        return type(self).of, (self.problems,), self.__dict__


class ConfigError(CoterieError):
    """The configuration, or an argument, cannot be used."""

    code = 2


class DataError(CoterieError):
    """The data cannot be read, or do not contain what was requested."""

    code = 3


class CheckpointError(CoterieError):
    """A run folder is damaged, belongs to another configuration, or cannot be written."""

    code = 4


class QuorumError(CoterieError):
    """Too few clients answered for too long."""

    code = 5


class PrivacyError(CoterieError):
    """A run would spend more privacy than its budget allows."""

    code = 6


class RemoteError(CoterieError):
    """A run elsewhere failed, or could not be reached."""

    code = 7


class SweepError(CoterieError):
    """Some runs of a sweep failed; the others are done."""

    code = 8
    of_lines = "failed"


class ExposedError(CoterieError):
    """A federation is open to strangers."""

    code = 9


class InUseError(CoterieError):
    """Another process writes the run folder."""

    code = 10


def shown(value: Any) -> str:
    """A value in an error line: short, on one line, printable.

    Example:
        >>> shown("a\\nb"), shown(True), shown([1, 2.5]), shown(16**5000)
        ("'a\\\\nb'", 'true', '[1, 2.5]', 'an integer of 20001 bits')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 200:
        # Its digits would take seconds, and Python refuses to write more than 4300 of them.
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        items = [shown(v) for v in value[:SHOWN_ITEMS]]
        if len(value) > SHOWN_ITEMS:
            items.append("...")
        return f"[{', '.join(items)}]"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if not isinstance(value, str | int | float | Path | date | time):
        name = type(value).__name__
        return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"
    text = repr(value) if isinstance(value, str | int | float) else repr(str(value))
    if len(text) <= SHOWN_LENGTH:
        return text
    # The last letter is the closing quote.
    return text[: SHOWN_LENGTH - 4] + "..." + text[-1]


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its name if it says nothing.

    Example:
        >>> first_line(ValueError("no such file")), first_line(KeyError())
        ('no such file', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    if lines:
        return lines[0]
    return type(error).__name__


def install_command(extra: str) -> str:
    """Return how to install an optional part of Coterie, to end the message of an error.

    Coterie is installed from a clone: no package index has it.

    Args:
        extra: a name in ``[project.optional-dependencies]`` of ``pyproject.toml``.

    Example:
        >>> install_command("ray")
        "`pip install '.[ray]'` in a clone of Coterie"
    """
    return f"`pip install '.[{extra}]'` in a clone of Coterie"
