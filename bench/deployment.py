"""How large the layer is, how long it takes to build, and how long `cdk synth` takes.

`python -m bench.deployment` prints one line per figure.
"""

import shutil
import subprocess
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from layers.core import build

ROOT = build.ROOT
_LARGEST = 5


def report() -> Iterator[str]:
    yield from layer_size()
    yield from layer_build_time()
    yield from synth_time()


def layer_size() -> Iterator[str]:
    """Packed and unpacked megabytes (10^6 bytes) per architecture, and what weighs most."""
    for architecture in build.PLATFORMS:
        archive = build.build_layer(architecture)
        with zipfile.ZipFile(archive) as zipped:
            entries = zipped.infolist()
        parts: Counter[str] = Counter()
        for entry in entries:
            parts[Path(entry.filename).parts[1]] += entry.file_size
        largest = ", ".join(f"{name} {size / 1e6:.1f}" for name, size in parts.most_common(_LARGEST))
        unpacked = sum(parts.values()) / 1e6
        yield f"layer {architecture}: {unpacked:.1f} MB, zip {archive.stat().st_size / 1e6:.1f} MB ({largest})"


def layer_build_time() -> Iterator[str]:
    """Seconds from nothing (wheels downloaded before), after a change of the library, and unchanged."""
    cache, library = build.CACHE, build.LIBRARY
    with tempfile.TemporaryDirectory() as folder:
        build.CACHE, build.LIBRARY = Path(folder) / "layer", Path(folder) / "spotwright"
        shutil.copytree(library, build.LIBRARY)
        try:
            first = _seconds_to_build()
            (build.LIBRARY / "changed.py").write_text("CHANGED = True\n")
            changed, unchanged = _seconds_to_build(), _seconds_to_build()
        finally:
            build.CACHE, build.LIBRARY = cache, library
    yield f"layer build: {first:.1f} s from nothing, {changed:.1f} s after a change, {unchanged:.2f} s unchanged"


def _seconds_to_build() -> float:
    start = time.perf_counter()
    build.build_layer("arm64")
    return time.perf_counter() - start


def synth_time() -> Iterator[str]:
    """Seconds of the real command, with the layer built."""
    build.build_layer("arm64")
    with tempfile.TemporaryDirectory() as output:
        command = ["node_modules/.bin/cdk", "synth", "--quiet", "--no-notices", "--output", output]
        start = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
        yield f"cdk synth: {time.perf_counter() - start:.1f} s"


if __name__ == "__main__":
    for line in report():
        print(line, flush=True)
