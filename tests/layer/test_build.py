"""An unchanged layer is not built again; test_image.py builds it in another place and compares."""

import importlib.util
import shutil
import struct
import zipfile
from pathlib import Path

import pytest

from layers.core import build


def test_an_unchanged_layer_is_not_built_again(
    archive: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(build, "install_locked", refuse)
    monkeypatch.setattr(build, "_compile", refuse)
    assert build.build_layer(architecture) == archive


def test_a_changed_library_is_another_layer_with_the_same_dependencies(
    archive: Path, architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "spotwright"
    shutil.copytree(build.LIBRARY, changed)
    monkeypatch.setattr(build, "LIBRARY", changed)
    assert build.layer_key(architecture) in archive.name
    (changed / "new.py").write_text("NEW = 1\n")
    monkeypatch.setattr(build, "install_locked", lambda *_: pytest.fail("dependencies did not change"))
    other = build.build_layer(architecture)
    assert other != archive
    with zipfile.ZipFile(other) as zipped:
        assert "python/spotwright/new.py" in zipped.namelist()
    other.unlink()


def test_bytecode_left_by_a_run_changes_nothing(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "spotwright"
    shutil.copytree(build.LIBRARY, library, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(build, "LIBRARY", library)
    before = build.layer_key(architecture)
    (library / "__pycache__").mkdir()
    (library / "__pycache__/model.cpython-313.pyc").write_bytes(b"stale")
    assert build.layer_key(architecture) == before


def test_every_module_has_bytecode_that_is_never_checked(layer: Path) -> None:
    """PEP 552: flags 0b01 mean a hash, and no check of it."""
    for module in layer.rglob("*.py"):
        cached = Path(importlib.util.cache_from_source(str(module))).read_bytes()
        assert (cached[:4], struct.unpack("<I", cached[4:8])) == (importlib.util.MAGIC_NUMBER, (0b01,)), module


def test_arm_machines_get_arm_code(tmp_path: Path) -> None:
    with zipfile.ZipFile(build.build_layer("arm64")) as zipped:
        libraries = [name for name in zipped.namelist() if name.endswith(".so")]
        machines = {struct.unpack("<H", zipped.read(name)[18:20])[0] for name in libraries}
    assert libraries
    assert machines == {183}  # EM_AARCH64


def test_a_module_that_does_not_compile_is_named(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "spotwright"
    library.mkdir()
    (library / "broken.py").write_text("def (\n")
    monkeypatch.setattr(build, "LIBRARY", library)
    with pytest.raises(build.LayerError, match=r"spotwright/broken\.py"):
        build.build_layer(architecture)


def test_without_uv_the_message_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "ROOT", tmp_path)
    with pytest.raises(build.LayerError, match="uv is needed"):
        build.layer_key("arm64")
