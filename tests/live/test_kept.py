"""What stays with clients of real processes, ``make test-flower``: it equals the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.config.toml_text import read
from coterie.experiment import check
from coterie.flower.kept import KEPT_FILE
from coterie.runs.folder.store import RunFolder
from coterie.runs.progress import OWN_MODELS, kept_state
from tests.live.federations import ROUNDING, relative_difference, relative_gap
from tests.live.test_federation import rows_of, site

pytestmark = pytest.mark.flower


def test_models_of_the_clients_own_are_in_files_of_their_nodes(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    with site(tmp_path, 3) as three:
        tables = read(three.folder / "run.toml")
        tables["algorithm"] = {"name": "ditto"}
        tables["train"] |= {"rounds": 2, "evaluate_every": 2}
        config = check(tables)
        out = three.run(config)
        here = three.simulated(config, "ditto")
        gap = relative_difference(out, here)
        files = list(tmp_path.rglob(KEPT_FILE))
        kept = [load_file(file)["vectors"][-1] for file in files]
        modes = {file.stat().st_mode & 0o777 for file in files}
    checkpoint = RunFolder(here).checkpoints.latest()
    assert checkpoint is not None
    own = kept_state(checkpoint.extra, OWN_MODELS).vectors
    print("largest difference", gap, "bytes kept", [vector.nbytes for vector in kept])
    assert gap <= ROUNDING
    # Files are named by hashes, so the clients are found by what they hold.
    nearest = [min(relative_gap(vector, one) for one in own) for vector in kept]
    assert len(kept) == 3
    assert max(nearest) <= ROUNDING
    assert modes == {0o600}
    assert not any(row["refused"] for row in rows_of(out))
    assert rows_of(out)[-1]["accuracy"] == RunFolder(here).rows()[-1]["accuracy"]
