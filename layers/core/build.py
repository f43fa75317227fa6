"""Builds the one layer: locked dependencies + library + bytecode, without docker.

`python -m layers.core.build arm64` prints the path of the zip. The same inputs give the same bytes: the zip's
name carries the hash of everything that goes in, so an unchanged layer is not built again. Dependencies are
cached apart from the library, because they change less often.

Bytecode is made here: a zip forgets modification times and /opt is read-only, so Python would otherwise
compile every module again at each cold start.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from layers.core.authorities import write_authorities
from layers.core.contents import OMITTED_DISTRIBUTIONS, PRUNED_DISTRIBUTIONS, trim

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "layers/core/python/spotwright"
CACHE = ROOT / "build/layer"
PYTHON_VERSION = "3.13"

#: Lambda's architecture names → the platform whose wheels run there. Lambda's Python 3.13 is Amazon Linux 2023
#: (glibc 2.34). https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtimes.html
PLATFORMS = {"arm64": "aarch64-manylinux_2_28", "x86_64": "x86_64-manylinux_2_28"}

#: Lambda unzips a layer here, so tracebacks name these paths.
_MOUNT = "/opt/python"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_INSTALL_SECONDS = 600
_KEEP_SECONDS = 24 * 3600


class LayerError(Exception):
    """The layer cannot be built here; the message says what is missing."""


def layer_key(architecture: str) -> str:
    """The hash of all that goes into the layer: 32 hex digits."""
    return _digest([_dependencies_key(architecture).encode(), *_contents(LIBRARY)])


def build_layer(architecture: str) -> Path:
    """The zip of the layer for an architecture, built unless it is there."""
    target = CACHE / f"core-{architecture}-{layer_key(architecture)}.zip"
    if not target.exists():
        _forget_old_layers()
        dependencies = _build_dependencies(architecture)
        with _scratch() as scratch:
            library = scratch / "python/spotwright"
            shutil.copytree(LIBRARY, library, ignore=shutil.ignore_patterns("__pycache__"))
            _compile(scratch / "python")
            unfinished = scratch / "layer.zip"
            shutil.copyfile(dependencies, unfinished)
            _append(unfinished, scratch, scratch / "python")
            unfinished.replace(target)
    return target


def _build_dependencies(architecture: str) -> Path:
    target = CACHE / f"dependencies-{architecture}-{_dependencies_key(architecture)}.zip"
    if not target.exists():
        with _scratch() as scratch:
            install_locked(architecture, scratch / "python", _layer_selection())
            trim(scratch / "python")
            write_authorities(scratch / "python")
            _compile(scratch / "python")
            unfinished = scratch / "dependencies.zip"
            _append(unfinished, scratch, scratch / "python")
            unfinished.replace(target)
    return target


def _dependencies_key(architecture: str) -> str:
    recipe = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return _digest([architecture.encode(), sys.version.encode(), _requirements(_layer_selection()).encode(), *recipe])


def _layer_selection() -> list[str]:
    """Of the locked packages those of the layer, as options of `uv export`."""
    pruned = [word for name in sorted(PRUNED_DISTRIBUTIONS) for word in ("--prune", name)]
    omitted = [word for name in OMITTED_DISTRIBUTIONS for word in ("--no-emit-package", name)]
    return ["--no-dev", *pruned, *omitted]


def install_locked(architecture: str, target: Path, selection: Sequence[str]) -> None:
    """Installs locked packages for an architecture into a folder. `selection`: which, as options of `uv export`."""
    with _scratch() as scratch:
        requirements = scratch / "requirements.txt"
        requirements.write_text(_requirements(selection))
        # Copies, since trimming edits files that would otherwise be uv's own cache. Nothing is resolved here.
        options = ["--quiet", "--no-deps", "--require-hashes", "--link-mode", "copy", "--only-binary", ":all:"]
        platform = ["--python-platform", PLATFORMS[architecture], "--python-version", PYTHON_VERSION]
        where = ["--python", sys.executable, "--target", str(target), "--requirements", str(requirements)]
        _uv(["pip", "install", *options, *platform, *where])


def _requirements(selection: Sequence[str]) -> str:
    """Locked packages with their hashes, as pip writes them."""
    return _uv(["export", "--quiet", "--frozen", "--no-emit-project", "--no-header", "--no-annotate", *selection])


def _uv(arguments: list[str]) -> str:
    """Runs uv in the project and returns its output."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        done = subprocess.run(
            [_uv_program(), *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise LayerError(f"uv {arguments[0]} failed: {error.stderr.strip()}") from error
    return done.stdout


def _uv_program() -> str:
    own = ROOT / ".tools/uv/bin/uv"
    program = os.environ.get("UV") or (str(own) if own.exists() else shutil.which("uv"))
    if not program:
        raise LayerError("uv is needed to build the layer: not in $UV, .tools/uv/bin/uv or on the PATH")
    return program


def _compile(python: Path) -> None:
    """Adds bytecode; a fixed hash seed and one process keep its bytes the same every time."""
    if sys.version_info[:2] != tuple(map(int, PYTHON_VERSION.split("."))):
        raise LayerError(f"the layer's bytecode needs Python {PYTHON_VERSION}, this is {sys.version}")
    mode = ["--invalidation-mode", "unchecked-hash"]
    paths = ["-s", str(python), "-p", _MOUNT]
    done = subprocess.run(
        [sys.executable, "-m", "compileall", "-q", *mode, *paths, str(python)],
        env={"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")},
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
    )
    if done.returncode:
        raise LayerError(f"a module does not compile: {done.stdout.strip()}")


def _append(archive: Path, base: Path, folder: Path) -> None:
    """Adds a folder's files to a zip, sorted, with the dates and owners left out."""
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as into:
        for path in _files(folder):
            entry = zipfile.ZipInfo(path.relative_to(base).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if path.stat().st_mode & 0o100 else 0o644) << 16
            into.writestr(entry, path.read_bytes())


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _contents(folder: Path) -> Iterator[bytes]:
    """Each source file's name and bytes; bytecode a test run left behind does not count."""
    for path in _files(folder):
        if "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix().encode()
            yield path.read_bytes()


def _digest(parts: list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder beside the cache, so that a finished zip moves into place in one step."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="unfinished-") as folder:
        yield Path(folder)


def _forget_old_layers() -> None:
    for path in CACHE.glob("core-*.zip"):
        # Another build may have forgotten it by now.
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _KEEP_SECONDS:
                path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("architecture", choices=sorted(PLATFORMS))
    print(build_layer(parser.parse_args().architecture))


if __name__ == "__main__":
    main()
