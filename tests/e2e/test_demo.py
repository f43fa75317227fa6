"""The demo is the main job on real input: it fails unless everything it tells was seen."""

import subprocess
import sys
from pathlib import Path

import pytest

from local.cdk_deployment import ROOT

pytestmark = pytest.mark.stack


def test_the_demo_tells_its_story_to_the_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "local.demo", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2400, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    for line in (
        "replacement first",
        "a smaller node first",
        "zero nodes for 120 s and no launch",
        "then one on one node",
        "nothing left",
    ):
        assert line in done.stdout
