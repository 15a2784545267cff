"""Models as ONNX, checked against torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn

from coterie.errors import ConfigError, first_line, install_command

TOLERANCE = 1e-5
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
OTHERS_STAY = "without --onnx, everything else is exported"


def require_onnx() -> None:
    """Refuse to continue without the extra ``onnx``."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        verb = "is"
        if len(missing) > 1:
            verb = "are"
        what = f"{', '.join(missing)} {verb} not installed"
        raise ConfigError("not-installed", "--onnx", what, do=f"run {install_command('onnx')}")


def write_onnx(module: nn.Module, inputs: Tensor, path: Path, output: str = "logits") -> float:
    """Write a model as ONNX, with any number of inputs at a time, and compare it with torch in ONNX
    Runtime on two inputs or more; returns the largest absolute difference of an output.

    Raises:
        ConfigError: if torch cannot write it, ONNX Runtime cannot run it, or an output differs by
            more than 1e-5 (relative to the largest output, if that is above 1).
    """
    try:
        with silence():
            program = torch.onnx.export(
                module,
                (inputs,),
                dynamo=True,
                input_names=["x"],
                output_names=[output],
                # Any number of inputs: otherwise the file would hold the number that it was
                # traced with.
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
            assert program is not None
            program.save(str(path), external_data=False)
    except Exception as error:
        what = f"torch cannot write the network ({type(error).__name__}: {first_line(error)})"
        raise ConfigError("failed", "--onnx", f"{what}; {OTHERS_STAY}") from error
    try:
        difference, relative = _compare(module, inputs, path)
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        what = f"ONNX Runtime cannot run {path.name} ({reason})"
        raise ConfigError("failed", "--onnx", f"{what}; {OTHERS_STAY}") from error
    # `not <=` also refuses NaN.
    if not relative <= TOLERANCE:
        what = f"the outputs of {path.name} differ from PyTorch's"
        expected = f"at most {TOLERANCE:g}"
        raise ConfigError("differs", "--onnx", what, found=f"{relative:.1e}", allowed=expected)
    return difference


@contextmanager
def silence() -> Iterator[None]:
    """Print, log and warn nothing: torch tells of every step of an export."""
    sink = StringIO()
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(sink), redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _compare(module: nn.Module, inputs: Tensor, path: Path) -> tuple[float, float]:
    """The largest difference of an output: absolute, and relative to outputs above 1."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    # A few inputs; a thread for every core would take longer to start than to compute.
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    gaps = []
    relative_gaps = []
    # As many inputs as the network was traced with, and another number.
    for part in (inputs, inputs[:1]):
        (outputs,) = session.run(None, {name: part.numpy()})
        with torch.no_grad():
            expected = module(part)
        found = torch.from_numpy(outputs)
        gaps.append((found - expected).abs().max())
        relative_gaps.append(relative_gap(found, expected))
    # Torch's maximum of a NaN and a number is NaN, Python's may be the number.
    return torch.stack(gaps).max().item(), torch.stack(relative_gaps).max().item()


def relative_gap(found: Tensor, expected: Tensor) -> Tensor:
    """The largest difference of an output, relative to the largest output above 1. With the outputs
    of one target a small one differs as much as a large one: rounding is that of its units."""
    return (found - expected).abs().max() / expected.abs().max().clamp(min=1)
