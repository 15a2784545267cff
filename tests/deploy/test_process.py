"""Starting and stopping Flower's commands."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from coterie.deploy.process import stop


def test_processes_are_stopped_with_all_that_they_started() -> None:
    code = "import subprocess, time; subprocess.Popen(['sleep', '97'], start_new_session=True); time.sleep(97)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    end = time.monotonic() + 20
    while not (
        children := subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True
        ).stdout.split()
    ):
        assert time.monotonic() < end
        time.sleep(0.05)
    stop([process], 0.5)
    assert process.poll() is not None
    end = time.monotonic() + 10
    while any(_runs(int(child)) for child in children):
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
