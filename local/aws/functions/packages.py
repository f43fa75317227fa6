"""Deployment packages on disk: each zip is unpacked once per content, never changed afterwards."""

import hashlib
import io
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

# What awslambdaric imports besides the standard library; the only foreign code a function sees for free.
RUNTIME_MODULES = ("awslambdaric", "runtime_client", "snapshot_restore_py", "simplejson")


def unpack(directory: Path, zips: Mapping[str, bytes]) -> Path:
    """The folder with the contents of `zips` (by digest), a later one over an earlier, as Lambda merges layers."""
    target = directory / hashlib.sha256(" ".join(zips).encode()).hexdigest()[:32]
    if target.exists():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=directory))
    for content in zips.values():
        _extract(content, scratch)
    scratch.chmod(0o755)
    return _published(scratch, target)


def runtime_folder(directory: Path) -> Path:
    """A folder that holds awslambdaric and what it imports, and nothing else: LAMBDA_RUNTIME_DIR."""
    target = directory / "runtime"
    if target.exists():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=directory))
    for module in RUNTIME_MODULES:
        source = _location(module)
        (scratch / source.name).symlink_to(source)
    return _published(scratch, target)


def _published(scratch: Path, target: Path) -> Path:
    """Rename into place; whoever comes second throws its copy away."""
    try:
        scratch.rename(target)
    except OSError:
        shutil.rmtree(scratch)
    return target


def _extract(content: bytes, target: Path) -> None:
    """Unzip with the file modes of the archive (zipfile alone loses them)."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, target))
            mode = stat.S_IMODE(entry.external_attr >> 16)
            if not entry.is_dir():
                path.chmod(mode | stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)


def _location(module: str) -> Path:
    """The file or package folder that `import module` would read."""
    spec = PathFinder.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the local Lambda runtime needs {module}")
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin
