"""Writes ``byzfl.json``: what byzfl 0.0.11 makes of random points, for ``tests/math/test_robust.py``.

    pip install byzfl==0.0.11        # in an environment of its own
    python tests/golden/byzfl_values.py

Points are drawn from ``numpy.random.default_rng(seed)``: honest ones around 1, the last ``f`` far
away. ``byzfl`` keeps them in float64 if they are NumPy arrays.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CASES = [(0, 7, 3, 2), (1, 12, 5, 3), (2, 3, 4, 1), (3, 20, 6, 4)]  # seed, n, d, f


def points(seed: int, n: int, d: int, f: int) -> np.ndarray:
    """The points of a case, float64 ``[n, d]``."""
    drawn = 1 + np.random.default_rng(seed).normal(size=(n, d))
    drawn[n - f :] *= -20
    return drawn


def main() -> None:
    """Write the file beside this one."""
    from byzfl import (  # type: ignore[import-not-found]
        CenteredClipping,
        GeometricMedian,
        Krum,
        Median,
        MultiKrum,
        TrMean,
    )

    found = []
    for case in CASES:
        seed, n, d, f = case
        drawn = points(*case)
        rules = {
            "coordinate_median": Median(),
            "trimmed_mean": TrMean(f),
            "krum": Krum(f),
            "multi_krum": MultiKrum(f),
            "geometric_median": GeometricMedian(nu=0.1, T=8),
            "centred_clipping": CenteredClipping(L=3, tau=2.0),
        }
        values = {name: rule(drawn).tolist() for name, rule in rules.items()}
        found.append({"seed": seed, "n": n, "d": d, "f": f, **values})
    file = Path(__file__).with_name("byzfl.json")
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
