"""A command starts with what it uses, and ends as it should."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CASE = Path(__file__).parents[1] / "cases" / "scheduling" / "a04-zone-in.yaml"
SLOW = {"boto3", "botocore", "kubernetes", "urllib3", "asyncio", "ssl"}


def ran(
    *arguments: str, code: str = "from spotwright.cli.__main__ import once; once()"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.argv[1:] = {list(arguments)!r}\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def as_json(tmp_path: Path) -> Path:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(yaml.safe_load(CASE.read_text())))
    return path


def modules_of(path: Path) -> set[str]:
    code = """
from spotwright.cli import main
main()
print(*sorted(sys.modules), file=sys.stderr)
"""
    done = ran("plan", str(path), code=code)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_a_plan_of_a_file_imports_no_client() -> None:
    assert not SLOW & modules_of(CASE)


def test_yaml_is_read_only_where_there_is_some(as_json: Path) -> None:
    assert "yaml" not in modules_of(as_json)


def test_json_and_yaml_say_the_same(as_json: Path) -> None:
    assert ran("plan", str(as_json)).stdout == ran("plan", str(CASE)).stdout


def test_the_whole_answer_comes_through_a_pipe() -> None:
    done = ran("plan", str(CASE), "--output", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)


def test_broken_json_is_told_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"kind": "Pod",\n "metadata": {"name": "a"\n')
    done = ran("plan", str(path))
    assert done.returncode == 2
    assert f"{path}:3: not YAML" in done.stderr


@pytest.mark.parametrize(("arguments", "code"), [(["plan", "nowhere.yaml"], 2), (["--help"], 0), (["nonsense"], 2)])
def test_the_exit_code_arrives(arguments: list[str], code: int) -> None:
    assert ran(*arguments).returncode == code


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AWS_PROFILE", "none", "The config profile (none) could not be found: correct AWS_PROFILE"),
        ("AWS_REGION", "us east", "region_name 'us east' doesn't match a supported format: correct AWS_PROFILE"),
    ],
)
@pytest.mark.parametrize("command", ["init", "orphans"])
def test_an_environment_that_makes_no_client_is_told_in_a_sentence(
    name: str, value: str, said: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cdk.json"
    path.write_text(json.dumps({"context": {"spotwright": {"clusters": []}}}))
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv(name, value)
    done = ran(command, "--cluster", "c", *(["--config", str(path)] if command == "init" else []))
    assert done.returncode == 2
    assert done.stderr.startswith(f"spotwright {command}: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["plan", str(CASE)], ["plan", str(CASE), "-o", "yaml"], ["catalog"], ["--help"], ["plan", "--help"]]
)
@pytest.mark.parametrize(("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")])
def test_an_answer_that_cannot_be_written_is_an_error(arguments: list[str], redirection: str, why: str) -> None:
    code = "from spotwright.cli.__main__ import once; once()"
    command = shlex.join([sys.executable, "-c", code, *arguments])
    done = subprocess.run(
        ["bash", "-c", f"{command} {redirection}"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stderr == f"spotwright: standard output cannot be written: {why}\n"
    assert done.returncode == 2
