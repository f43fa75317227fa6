"""The first import of a function: modules come out of one file, and nothing is collected while it starts.

Hundreds of modules are made and next to nothing is thrown away, yet the collector would look through all of them again
and again: a tenth of the start. Afterwards what is there stays for as long as the process, and is not looked at again.

To look for each module in every folder of the path and to open it takes a third of the rest. The layer has the bytecode
of all its modules in two files (`layers/core/bytecode.py`), whose index says where each is. Without them, as in a
checkout, Python finds modules as it always does.
"""

import gc
import marshal
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType
from typing import Final

gc.disable()

# Beside the packages whose modules they hold.
FOLDER: Final = __file__.rpartition("/spotwright/")[0]
FILES: Final = ("dependencies.bytecode", "spotwright.bytecode")


class _Loader(SourceFileLoader):
    """Python's own, but for where the bytecode lies."""

    def __init__(self, name: str, path: str, file: int, offset: int, size: int) -> None:
        super().__init__(name, path)
        self._where = (file, size, offset)

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = marshal.loads(os.pread(*self._where))
        return code


class _Finder:
    """Finds the modules of one file. The file stays open: modules are imported for as long as the process lives."""

    def __init__(self, file: int, path: str) -> None:
        head = os.pread(file, 4 + len(MAGIC_NUMBER), 0)
        size = int.from_bytes(head[:4], "little")
        self._file, self._path, self._start = file, path, len(head) + size
        # Name → offset, size, path of the source; bytecode of another Python is none.
        self._modules: dict[str, tuple[int, int, str]] = {}
        if head[4:] == MAGIC_NUMBER:
            self._modules = marshal.loads(os.pread(file, size, len(head)))

    def find_spec(self, name: str, path: Iterable[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        offset, size, source = self._modules[name]
        origin = f"{FOLDER}/{source}"
        loader = _Loader(name, origin, self._file, self._start + offset, size)
        spec = ModuleSpec(name, loader, origin=origin, is_package=source.endswith("/__init__.py"))
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(origin.rpartition("/")[0])
        spec.has_location, spec.cached = True, self._path
        return spec


def _find_in_files() -> None:
    for name in FILES:
        path = f"{FOLDER}/{name}"
        with suppress(FileNotFoundError):
            sys.meta_path.insert(0, _Finder(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path))


_find_in_files()


def over() -> None:
    """The last line of a handler's imports: from here on things are thrown away."""
    gc.freeze()
    gc.enable()
