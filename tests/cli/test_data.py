"""Commands that show choices and data."""

from __future__ import annotations

import re

import pytest

from coterie.cli.main import invoke


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (
            "algorithms",
            ["fedavg", "fedgroup", "groups=3", "an integer >= 1", "one of 'edc', 'madc'"],
        ),
        ("models", ["mclr", "lenet5", "hidden=128"]),
        ("datasets", ["digits", "cifar10", "pixels="]),
        ("shifts", ["swap_all", "incremental"]),
        ("partitions", ["dirichlet", "beta=0.1", "a number > 0"]),
        ("engines", ["pool", "vmap", "ray", "precision=", "one of 'serial', 'vmap'"]),
    ],
)
def test_list(what: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["list", what]) == 0
    text = capsys.readouterr().out
    for name in names:
        assert name in text


def test_inspect(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["data", "inspect", config]) == 0
    text = capsys.readouterr().out
    assert "digits, iid: 6 clients, 10 classes" in text
    assert re.search(r"train +6 +1,61\d", text)
    assert "█" in text
