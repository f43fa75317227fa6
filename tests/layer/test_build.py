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


def contents(architecture: str) -> dict[str, bytes]:
    with zipfile.ZipFile(build.build_layer(architecture)) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def test_arm_machines_get_arm_code_under_the_names_that_their_python_imports() -> None:
    """https://docs.python.org/3.13/library/importlib.html#importlib.machinery.EXTENSION_SUFFIXES"""
    libraries = {name: code for name, code in contents("arm64").items() if name.endswith(".so")}
    assert libraries
    assert {struct.unpack("<H", code[18:20])[0] for code in libraries.values()} == {183}  # EM_AARCH64
    suffixes = {"." + name.rpartition("/")[2].partition(".")[2] for name in libraries}
    assert suffixes <= {".cpython-313-aarch64-linux-gnu.so", ".abi3.so", ".so"}


def test_the_architectures_differ_in_machine_code_alone() -> None:
    """So what is imported on one of them, tests included, is imported on the other: modules and their bytecode."""
    arm, x86 = (
        {name: code for name, code in contents(architecture).items() if not name.endswith(".so")}
        for architecture in ("arm64", "x86_64")
    )
    # What an installer writes about a wheel names its platform.
    told = ("/WHEEL", "/RECORD")
    assert arm.keys() == x86.keys()
    assert [name for name in arm if arm[name] != x86[name] and not name.endswith(told)] == []


def test_every_extension_of_one_architecture_is_there_for_the_other() -> None:
    def modules(architecture: str) -> set[str]:
        return {name.partition(".")[0] for name in contents(architecture) if name.endswith(".so")}

    assert modules("arm64") == modules("x86_64") != set()


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
