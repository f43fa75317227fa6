"""The Go module of a control plane of another version than the one whose module is checked in."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

DOWNLOAD_SECONDS = 900
# Of a Kubernetes release itself: modules of its repository, each published beside it as v0.<minor>.<patch>.
STAGED = re.compile(r"^\s+(\S+) => \./staging/", re.MULTILINE)


class ModuleMissing(RuntimeError):
    """Go could not get Kubernetes of that version; the text holds what it said."""


def write_module(
    folder: Path, source: Path, version: str, environment: Mapping[str, str], report: Callable[[str], None]
) -> None:
    """Lay out in `folder` what `go build -mod=mod` builds: main.go of `source`, and a go.mod for `version`.

    Kubernetes itself says which versions of everything else it wants, and the checksums are those of Go's
    checksum database. Raises ModuleMissing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "main.go", folder)
    language = re.search(r"^go .*$", (source / "go.mod").read_text(), re.MULTILINE)
    assert language is not None
    lines = ["module controlplane", language[0], f"require k8s.io/kubernetes v{version}"]
    lines += _replacements(version, environment, report)
    (folder / "go.mod").write_text("\n".join(lines) + "\n")


def _replacements(version: str, environment: Mapping[str, str], report: Callable[[str], None]) -> Iterator[str]:
    """A line for each staged module, at the release's patch or else at the nearest that Go gets.

    A proxy may hold back single versions of single modules; from patch to patch their interfaces stay.
    """
    release = f"k8s.io/kubernetes@v{version}"
    found = _downloaded([release], environment)[release]
    if "Error" in found:
        raise ModuleMissing(f"Go did not get Kubernetes {version}: {found['Error']}")
    minor, patch = (int(part) for part in version.split(".")[1:])
    missing = sorted(set(STAGED.findall(Path(found["GoMod"]).read_text())))
    for candidate in nearest_patches(patch):
        given_out = _downloaded([f"{name}@v0.{minor}.{candidate}" for name in missing], environment)
        for module, answer in given_out.items():
            name, _, staged = module.partition("@")
            if "Error" not in answer:
                missing.remove(name)
                yield f"replace {name} => {name} {staged}"
                if candidate != patch:
                    report(f"  {name} {staged} stands in for v0.{minor}.{patch}, which Go does not get")
        if not missing:
            return
    raise ModuleMissing(f"Go did not get {', '.join(missing)} of any patch of Kubernetes 1.{minor}")


def nearest_patches(patch: int) -> Iterator[int]:
    """The patch, then those beside it, nearest first, down to the first."""
    yield patch
    yield from chain.from_iterable(
        (other for other in (patch - distance, patch + distance) if other >= 0) for distance in range(1, patch + 1)
    )


def _downloaded(modules: Sequence[str], environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What `go mod download` says of each module@version: GoMod and more, or Error."""
    go = shutil.which("go", path=environment.get("PATH")) or "go"
    answer = subprocess.run(
        [go, "mod", "download", "-json", *modules],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
        check=False,
    )
    decoder, text, said = json.JSONDecoder(), answer.stdout.strip(), {}
    while text:
        found, end = decoder.raw_decode(text)
        said[f"{found['Path']}@{found['Version']}"] = found
        text = text[end:].lstrip()
    return {module: said.get(module, {"Error": answer.stderr.strip()}) for module in modules}
