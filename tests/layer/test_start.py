"""The layer's modules come out of two files, and are what they would be as files of their own."""

import shutil
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from tests.layer.conftest import Python


def test_modules_come_from_the_files_and_say_where_their_source_is(python: Python, layer: Path) -> None:
    code = """
import botocore, botocore.session, msgspec._core, spotwright.edge
for module in (botocore, botocore.session, spotwright.edge):
    print(module.__file__, module.__cached__, module.__package__, getattr(module, '__path__', None))
print(msgspec._core.__file__.endswith('.so'))
"""
    assert python(code).splitlines() == [
        f"{layer}/botocore/__init__.py {layer}/dependencies.bytecode botocore ['{layer}/botocore']",
        f"{layer}/botocore/session.py {layer}/dependencies.bytecode botocore None",
        f"{layer}/spotwright/edge.py {layer}/spotwright.bytecode spotwright None",
        "True",
    ]


def test_the_source_of_a_module_is_shown_and_its_files_are_read(python: Python) -> None:
    code = """
import inspect, importlib.resources, spotwright.edge, spotwright.manifests
print(inspect.getsource(spotwright.edge.by_cluster).partition('(')[0])
print(any(one.suffix == '.yaml' for one in importlib.resources.files('spotwright.manifests').iterdir()))
"""
    assert python(code) == "def by_cluster\nTrue\n"


def test_a_module_that_is_not_there_is_missed_as_ever(python: Python) -> None:
    code = "try: import botocore.nothing\nexcept ModuleNotFoundError as error: print(error)"
    assert python(code) == "No module named 'botocore.nothing'\n"


def test_bytecode_of_another_python_is_none(layer: Path, tmp_path: Path) -> None:
    """Then modules are compiled from their sources: slow, but they run."""
    shutil.copytree(layer / "spotwright", tmp_path / "spotwright")
    content = bytearray((layer / "spotwright.bytecode").read_bytes())
    assert content[4:8] == MAGIC_NUMBER
    content[4:8] = b"\0\0\r\n"
    (tmp_path / "spotwright.bytecode").write_bytes(content)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from spotwright import start, failures\n"
    code += "print(type(failures.__loader__).__module__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert "spotwright" not in done.stdout
