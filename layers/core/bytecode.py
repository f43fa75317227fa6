"""The bytecode of a tree of modules in one file, which `spotwright.start` reads instead of one file for each module.

The file: the length of the index (4 bytes, little-endian), Python's magic number, the index, the code of every module.
The index is a marshalled dict: name → (offset of the code after the index, its size, path of the source).
"""

import marshal
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Final

# PEP 552: magic number, flags and hash stand before the code.
_HEADER_BYTES: Final = 16
# The last version without references, which depend on what else is in memory; the same index gives the same bytes.
_MARSHAL_VERSION: Final = 2
# What finds the others is found as ever.
_FIRST: Final = ("spotwright", "spotwright.start")


def gather(python: Path, target: Path) -> None:
    """Moves the bytecode of the compiled modules below ``python`` into ``target``, in the order of their files."""
    index, codes, offset = {}, [], 0
    for source in sorted(python.rglob("*.py")):
        path, cached = source.relative_to(python), Path(cache_from_source(str(source)))
        if _name(path) in _FIRST:
            continue
        code = cached.read_bytes()[_HEADER_BYTES:]
        index[_name(path)] = (offset, len(code), path.as_posix())
        codes.append(code)
        offset += len(code)
        cached.unlink()
    head = marshal.dumps(index, _MARSHAL_VERSION)
    target.write_bytes(b"".join((len(head).to_bytes(4, "little"), MAGIC_NUMBER, head, *codes)))
    for folder in list(python.rglob("__pycache__")):
        if not any(folder.iterdir()):
            folder.rmdir()


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")
