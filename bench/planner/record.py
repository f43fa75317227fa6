"""What was measured before: one JSON line per outcome, so that a run that was broken off goes on where it stopped."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from bench.planner.runs import Outcome

_ROOT: Final = Path(__file__).parents[2]
_LIBRARY: Final = _ROOT / "layers" / "core" / "python" / "spotwright"
SPOTWRIGHT: Final = (_LIBRARY / "model", _LIBRARY / "scheduling")
KARPENTER: Final = (Path(__file__).parent / "karpenter",)


class Entry(msgspec.Struct, frozen=True):
    """``key``: a digest of what ran and of its problem; ``name`` is for those who read the file."""

    key: str
    name: str
    outcome: Outcome


class Record:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        path.touch()
        entries = [msgspec.json.decode(line, type=Entry) for line in path.read_bytes().splitlines()]
        self._known = {entry.key: entry.outcome for entry in entries}

    def outcome(self, program: Iterable[Path], problem: Path, settings: str, measure: Callable[[], Outcome]) -> Outcome:
        """What these sources do with a problem; measured unless that is known. ``settings``: what else decides."""
        key = _digest(program, problem, settings)
        if key not in self._known:
            self._known[key] = measure()
            entry = Entry(key, f"{problem.stem} {settings}", self._known[key])
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")
        return self._known[key]


class _Problem(msgspec.Struct):
    catalog: str


def _digest(program: Iterable[Path], problem: Path, settings: str) -> str:
    """The same in every checkout: of a problem's catalog counts what is in it, not where it lies."""
    digest = hashlib.sha256(settings.encode())
    for path in program:
        for file in sorted(path.rglob("*.*")) if path.is_dir() else (path,):
            if file.is_file() and file.suffix != ".pyc":
                digest.update(file.name.encode() + file.read_bytes())
    content = problem.read_bytes()
    catalog = msgspec.json.decode(content, type=_Problem).catalog
    digest.update(problem.name.encode() + content.replace(msgspec.json.encode(catalog), b"", 1))
    digest.update(Path(catalog).read_bytes())
    return digest.hexdigest()[:24]
