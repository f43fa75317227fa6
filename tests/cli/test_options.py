"""Commands, options and help, as people type them."""

import json
import subprocess
from pathlib import Path

import pytest

from spotwright.cli import build_parser, main
from spotwright.cli.commands import plan as plan_command
from spotwright.scheduling.plan import Cause, Plan, UnplacedPod

ROOT = Path(__file__).parents[2]
LIMITED = str(ROOT / "tests" / "scenarios" / "reasons" / "limit.yaml")
PLACED = str(ROOT / "examples" / "scale-up-cmr.yaml")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    version = (ROOT / "pyproject.toml").read_text().partition('version = "')[2].partition('"')[0]
    assert capsys.readouterr().out == f"spotwright {version}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plna", "x.yaml"], "spotwright: there is no command plna; did you mean plan?\n"),
        (["xyz"], "spotwright: there is no command xyz; commands are plan, convert, "),
        (["plan", "--ouput=json", PLACED], "spotwright plan: there is no option --ouput; did you mean --output?\n"),
        (["plan", "--zzz", PLACED], "spotwright plan: there is no option --zzz; spotwright plan --help lists"),
        (["catalog", "--min-cpu", "x"], "spotwright catalog: --min-cpu: 'x' is not a Kubernetes quantity"),
        (["catalog", "--max-memory", "x"], "spotwright catalog: --max-memory: 'x' is not a Kubernetes quantity"),
        (["catalog", "--catalog", "x"], "spotwright catalog: there is no option --catalog; spotwright catalog --help"),
        (["pause", "--cluster", "a", "b"], "spotwright pause: b: the command takes no such argument; "),
    ],
)
def test_what_is_misspelt_is_answered_with_what_was_meant(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(said)
    assert shown.out == ""


@pytest.mark.parametrize("command", ["init", "preflight", "pause", "uninstall", "plan"])
@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 101])
def test_what_is_no_clusters_name_is_refused_before_anybody_is_asked(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--drain"] if command == "uninstall" else []
    assert main([command, f"--cluster={name}", *more]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"spotwright {command}: --cluster: got '{name[:70]}")
    assert "allowed: an EKS cluster's name: letters, digits, - and _, at most 100" in said


def test_files_may_be_named_as_kubectl_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", PLACED, "-o", "json"]) == 0
    positional = json.loads(capsys.readouterr().out)
    assert main(["plan", "-f", PLACED, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == positional
    assert main(["plan", "-f", PLACED, "-f", LIMITED, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] != positional["summary"]


@pytest.mark.parametrize(("file", "code"), [(LIMITED, 3), (PLACED, 0)])
def test_the_exit_code_says_whether_a_pod_has_no_place_where_it_is_asked_to(file: str, code: int) -> None:
    assert main(["plan", "--exit-code", file]) == code
    assert main(["plan", file]) == 0


def test_a_pod_that_is_not_planned_at_all_has_no_place_only_where_something_is_wrong_with_it() -> None:
    def leaves(cause: str) -> bool:
        return plan_command.leaves_pods(Plan(ignored_pods=(UnplacedPod("default/p", ("why",), (Cause(cause),)),)))

    assert leaves("VolumeNotUsable")
    assert not leaves("OwnedByDaemonSet")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in build_parser()[1].choices)
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in build_parser()[1].choices:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert f"usage: spotwright {command} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("jsn", "spotwright plan: --output jsn: there is no such value; did you mean json?\n"),
        ("q", "spotwright plan: --output q: there is no such value; allowed are text, wide, json, yaml\n"),
    ],
)
def test_a_value_that_an_option_does_not_have_is_answered_with_those_it_has(
    given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", PLACED, "-o", given])
    assert ended.value.code == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", [[], ["plan"]])
def test_help_is_a_command_too(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for arguments in (["help", *command], [*command, "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
