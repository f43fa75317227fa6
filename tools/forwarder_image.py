"""What the forwarder's image holds, in a folder: the functions' layer, with the forwarder and its own dependencies.

`python -m tools.forwarder_image arm64 FOLDER`; architectures by Lambda's names or by docker's. The image is made of
this folder and of Python, so what runs from the folder runs in the image.
"""

import argparse
import compileall
import py_compile
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from layers.core.build import PLATFORMS, build_layer, install_locked

FORWARDER: Final = Path(__file__).parents[1] / "forwarder"
_DOCKERS: Final = {"amd64": "x86_64"}


def assemble(architecture: str, folder: Path) -> None:
    """Fill a folder, replacing the forwarder and the libraries that it has."""
    with zipfile.ZipFile(build_layer(architecture)) as layer:
        for entry in layer.infolist():
            entry.filename = entry.filename.removeprefix("python/")
            layer.extract(entry, folder)
    with tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch) / "own"
        install_locked(architecture, own, ["--only-group", "forwarder"])
        shutil.copytree(FORWARDER, own / "forwarder", ignore=shutil.ignore_patterns("__pycache__", "Dockerfile"))
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(own, stripdir=str(own), quiet=1, invalidation_mode=mode)
        shutil.rmtree(folder / "forwarder", ignore_errors=True)
        shutil.copytree(own, folder, dirs_exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architecture", choices=sorted({*PLATFORMS, *_DOCKERS}))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    assemble(_DOCKERS.get(arguments.architecture, arguments.architecture), arguments.folder)


if __name__ == "__main__":
    main()
