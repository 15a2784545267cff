"""Models as ONNX, checked against torch."""

from __future__ import annotations

import logging
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn

from coterie.errors import ConfigError, install_command

TOLERANCE = 1e-5


def check_installed() -> None:
    """Refuse at once where the extra is missing.

    Raises:
        ConfigError: if a package that is needed is not installed.
    """
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError(f"--onnx: {what}; expected {install_command('onnx')}")


def write_onnx(module: nn.Module, inputs: Tensor, path: Path) -> float:
    """Write a model as ONNX, with any number of inputs at a time, and compare it with torch in ONNX
    Runtime.

    Args:
        module: in evaluation mode.
        inputs: float32 ``[n, ...]``, ``n >= 2``, to compare on.
        path: the file.

    Returns:
        the largest absolute difference of an output.

    Raises:
        ConfigError: if torch cannot write it, ONNX Runtime not run it, or an output differs by more
            than 1e-5 (relative to outputs above 1).
    """
    sink = StringIO()
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(sink), redirect_stderr(sink):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                (inputs,),
                dynamo=True,
                input_names=["x"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
            assert program is not None
            program.save(str(path), external_data=False)
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        what = f"torch cannot write the network ({type(error).__name__}: {line})"
        raise ConfigError(f"--onnx: {what}; without --onnx all else is exported") from error
    finally:
        logging.disable(level)
    try:
        return _difference(module, inputs, path)
    except ConfigError:
        raise
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        what = f"ONNX Runtime cannot run {path.name} ({type(error).__name__}: {line})"
        raise ConfigError(f"--onnx: {what}; without --onnx all else is exported") from error


def _difference(module: nn.Module, inputs: Tensor, path: Path) -> float:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst = 0.0
    off = 0.0
    for part in (inputs, inputs[:1]):  # as many as it was traced with, and another number
        (got,) = session.run(None, {session.get_inputs()[0].name: part.numpy()})
        with torch.no_grad():
            expected = module(part)
        gap = (torch.from_numpy(got) - expected).abs()
        worst = max(worst, gap.max().item())
        off = max(off, (gap / expected.abs().clamp(min=1)).max().item())
    if not off <= TOLERANCE:
        raise ConfigError(
            f"--onnx: {path.name} differs from torch, got {off:.1e}; expected at most {TOLERANCE:g}"
        )
    return worst
