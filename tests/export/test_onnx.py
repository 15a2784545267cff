"""Models as ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.core.keys import Key
from coterie.errors import ConfigError
from coterie.export import export_run
from coterie.models import MODELS, build_model
from tests.export.conftest import reference
from tests.export.test_network import SHAPES
from tests.refusals import refuses


def test_onnx_gives_what_torch_gives(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    done = export_run(run, tmp_path / "out", onnx=True)
    assert done.onnx is not None
    assert 0 <= done.onnx <= 1e-5
    networks, _, x = reference(run)
    for name, network in zip(("group-0", "group-1", "no-group"), networks, strict=True):
        session = onnxruntime.InferenceSession(
            str(done.folder / f"{name}.onnx"), providers=["CPUExecutionProvider"]
        )
        for part in (x, x[:1]):
            (got,) = session.run(None, {"x": part.numpy()})
            with torch.no_grad():
                np.testing.assert_allclose(got, network(part).numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_network_is_written_as_onnx(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from coterie.export.onnx import write_onnx

    shape = SHAPES.get(name, (1, 28, 28))
    network = build_model(name, shape, 2, Key(0)).eval()
    assert (
        write_onnx(network, torch.randn(8, *shape, generator=Key(1).torch()), tmp_path / "x.onnx")
        <= 1e-5
    )


def test_onnx_needs_its_extra(run: Path, tmp_path: Path, monkeypatch) -> None:
    from coterie.export import onnx

    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxscript" else object())
    with refuses(ConfigError, "not-installed", "--onnx"):
        export_run(run, tmp_path / "out", onnx=True)
    assert not (tmp_path / "out").exists()
