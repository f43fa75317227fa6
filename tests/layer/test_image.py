"""The forwarder's Dockerfile, done by hand: its files alone are enough for what it runs."""

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "forwarder/Dockerfile").read_text()
COPIED = [source for line in re.findall(r"^COPY (?!--)(.+)$", DOCKERFILE, re.M) for source in line.split()[:-1]]


@pytest.mark.parametrize("source", COPIED)
def test_docker_sees_what_is_copied(source: str) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert (ROOT / source).exists()
    assert any(fnmatch(source, pattern) for pattern in allowed)


def test_what_is_copied_is_enough_to_put_the_image_together(archive: Path, architecture: str, tmp_path: Path) -> None:
    for source in COPIED:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tmp_path / source).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / source, tmp_path / source)
    module, variable, folder = re.findall(r"^RUN python -m (\S+) (\S+) (\S+)$", DOCKERFILE, re.M)[0]
    assert variable == '"$TARGETARCH"'
    # The build stage installs uv; nothing of this checkout's environment may help it.
    inherited = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment = inherited | {"UV": str(ROOT / ".tools/uv/bin/uv")}
    app = tmp_path / folder.lstrip("/")
    docker = {"x86_64": "amd64"}.get(architecture, architecture)
    subprocess.run([_python(), "-m", module, docker, str(app)], cwd=tmp_path, env=environment, check=True, timeout=600)

    entry = re.findall(r'^ENTRYPOINT \["python", "-m", "(\w+)"\]$', DOCKERFILE, re.M)[0]
    assert (app / entry / "__main__.py").exists()
    assert list((app / entry / "__pycache__").glob("__main__.*.pyc"))
    # Nothing was taken from this checkout, so the same inputs give the same bytes wherever they lie.
    assert (tmp_path / "build/layer" / archive.name).read_bytes() == archive.read_bytes()


def _python() -> str:
    """The interpreter without the packages of this environment."""
    return str(sys._base_executable)  # type: ignore[attr-defined]
