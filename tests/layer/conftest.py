"""The layer as Lambda sees it: built for this machine and unzipped, with nothing else on the path."""

import platform
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from layers.core.build import build_layer

type Python = Callable[[str], str]


@pytest.fixture(scope="session")
def architecture() -> str:
    return "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"


@pytest.fixture(scope="session")
def archive(architecture: str) -> Path:
    return build_layer(architecture)


@pytest.fixture(scope="session")
def layer(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer's `python/` folder."""
    folder = tmp_path_factory.mktemp("opt")
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(folder)
    return folder / "python"


@pytest.fixture(scope="session")
def python(layer: Path) -> Python:
    """Runs code in a process that sees the standard library and the layer, and returns what it printed."""

    def run(code: str) -> str:
        prelude = f"import sys; sys.path.insert(0, {str(layer)!r}); sys.dont_write_bytecode = True\n"
        environment = {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_EC2_METADATA_DISABLED": "true"}
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", prelude + code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
