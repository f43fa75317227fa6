"""A burst against the local AWS, with EC2's limits, as `make bench-launch` measures it."""

import subprocess
import sys


def test_a_burst_gets_its_nodes_though_many_offerings_have_no_capacity() -> None:
    command = [sys.executable, "-m", "bench.launch", "--pods", "100"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
