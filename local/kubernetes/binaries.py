"""The binaries of the control plane: built once per version, kept outside the checkout, shared by stacks.

`controlplane` holds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl and is
called through links of those names; `kwok` plays the kubelets.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.kubernetes.versions import USUAL_VERSION, kubernetes_version

KWOK_VERSION = "v0.8.0"
SOURCE_FOLDER = Path(__file__).parent / "controlplane"
OTHER_MODULE = Path(__file__).with_name("other_module.py")
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
USUAL = "usually 6 to 12 minutes on 2 cores the first time, 20 seconds with Go's build cache"
REPORT_SECONDS = 20
LIMIT_SECONDS = 3600


class BuildFailed(RuntimeError):
    """A build did not succeed; the text holds what the compiler said."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The folder of built binaries."""

    folder: Path

    def path(self, name: str) -> Path:
        """Path of a component, or of `kwok`."""
        return self.folder / name


def cache_folder() -> Path:
    """Where binaries are kept: `$XDG_CACHE_HOME`/spotwright, else ~/.cache/spotwright."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "spotwright"


def ensure_built(report: Callable[[str], None], *, cache: Path | None = None) -> Binaries:
    """The binaries of `kubernetes_version()`, built first if they are not in the cache.

    Several callers at once build once: the others wait. Raises BuildFailed, ToolchainMissing, ModuleMissing and
    UnknownVersion.
    """
    cache = cache or cache_folder()
    version = kubernetes_version()
    folder = cache / f"controlplane-{version}-{_digest(version)}"
    if folder.exists():
        return Binaries(folder)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        _wait_for(lock.fileno(), report)
        if not folder.exists():
            _build(version, folder, cache, report)
    return Binaries(folder)


def _digest(version: str) -> str:
    """Names what goes into the binaries: sources, kwok's version, the machine's kind."""
    digest = hashlib.sha256(f"{KWOK_VERSION} {platform.system()} {platform.machine()}".encode())
    module = [SOURCE_FOLDER / "go.mod", SOURCE_FOLDER / "go.sum"] if version == USUAL_VERSION else [OTHER_MODULE]
    for path in (*module, SOURCE_FOLDER / "main.go"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _wait_for(lock: int, report: Callable[[str], None]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report("another process is building the control plane: waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _build(version: str, folder: Path, cache: Path, report: Callable[[str], None]) -> None:
    from local.kubernetes.other_module import write_module
    from local.kubernetes.toolchain import go_environment

    environment = go_environment(cache, report)
    report(f"building Kubernetes {version} and kwok {KWOK_VERSION} from source, {USUAL}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{folder.name}.") as scratch:
        target = Path(scratch) / "binaries"
        target.mkdir()
        source = SOURCE_FOLDER
        if version != USUAL_VERSION:
            source = Path(scratch) / "module"
            write_module(source, SOURCE_FOLDER, version, environment, report)
        _build_controlplane(version, source, target, environment, report)
        _build_kwok(target, environment, report)
        target.rename(folder)
    report(f"built in {time.monotonic() - started:.0f} s: {folder}")


def _build_controlplane(
    version: str, source: Path, target: Path, environment: Mapping[str, str], report: Callable[[str], None]
) -> None:
    command = [
        "go",
        "build",
        # Of a module that was just written, Go adds what it leaves open.
        *([] if source == SOURCE_FOLDER else ["-mod=mod"]),
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        _version_flags(version),
        "-o",
        str(target / "controlplane"),
        ".",
    ]
    _run("Kubernetes", command, environment, source, report)
    for component in COMPONENTS:
        (target / component).symlink_to("controlplane")


def _build_kwok(target: Path, environment: Mapping[str, str], report: Callable[[str], None]) -> None:
    package = f"sigs.k8s.io/kwok/cmd/kwok@{KWOK_VERSION}"
    command = ["go", "install", "-trimpath", "-ldflags", "-s -w", package]
    _run("kwok", command, {**environment, "GOBIN": str(target)}, target, report)


def _version_flags(version: str) -> str:
    """Linker flags: without them every component calls itself v0.0.0-master."""
    major, minor, _ = version.split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": f"v{version}",
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": f"v{version}",
    }
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def _run(
    what: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    report: Callable[[str], None],
) -> None:
    """Run a build to its end, with a line of progress now and then. Raises BuildFailed."""
    go = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [go, *command[1:]], env=dict(environment), cwd=directory, stdout=output, stderr=output
        )
        try:
            while (code := _wait(process)) is None:
                elapsed = time.monotonic() - started
                report(f"  {what}: building for {elapsed:.0f} s")
                if elapsed > LIMIT_SECONDS:
                    raise BuildFailed(f"{what} was not built after {LIMIT_SECONDS} s")
        finally:
            process.kill()
            process.wait()
        if code != 0:
            output.seek(0)
            raise BuildFailed(f"building {what} failed:\n{output.read()[-4000:]}")


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(REPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return None
