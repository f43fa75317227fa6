"""The Go module of a control plane of another version than the one whose module is checked in."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

DOWNLOAD_SECONDS = 900
# Of a Kubernetes release itself: modules of its repository, each published beside it as v0.<minor>.<patch>.
STAGED = re.compile(r"^\s+(\S+) => \./staging/", re.MULTILINE)


class ModuleMissing(RuntimeError):
    """Go could not get Kubernetes of that version; the text holds what it said."""


def write_module(folder: Path, source: Path, version: str, environment: Mapping[str, str]) -> None:
    """Lay out in `folder` what `go build -mod=mod` builds: main.go of `source`, and a go.mod for `version`.

    Kubernetes itself says which versions of everything else it wants, and the checksums are those of Go's
    checksum database. Raises ModuleMissing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "main.go", folder)
    language = re.search(r"^go .*$", (source / "go.mod").read_text(), re.MULTILINE)
    assert language is not None
    lines = ["module controlplane", language[0], f"require k8s.io/kubernetes v{version}"]
    lines += _replacements(_kubernetes_module(version, environment), version)
    (folder / "go.mod").write_text("\n".join(lines) + "\n")


def _kubernetes_module(version: str, environment: Mapping[str, str]) -> str:
    """Text of Kubernetes' own go.mod."""
    go = shutil.which("go", path=environment.get("PATH")) or "go"
    answer = subprocess.run(
        [go, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
        check=False,
    )
    if answer.returncode != 0:
        raise ModuleMissing(f"Go did not get Kubernetes {version}: {answer.stdout.strip()} {answer.stderr.strip()}")
    return Path(json.loads(answer.stdout)["GoMod"]).read_text()


def _replacements(module: str, version: str) -> Iterator[str]:
    staged = version.replace("1.", "v0.", 1)
    for name in STAGED.findall(module):
        yield f"replace {name} => {name} {staged}"
