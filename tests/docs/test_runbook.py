"""docs/runbook.md has a section for each alarm, and names commands, log lines and places that there are."""

import re
import shlex
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name

from infra.alarm_rows import alarm_rows
from infra.functions import INSTALL, QUEUE_FUNCTIONS
from spotwright.cli import build_parser
from spotwright.telemetry.tables import event_rows, log_line_rows, metric_rows

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "runbook.md").read_text()
HEADINGS = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", PAGE, flags=re.S), re.M)
ALARMS = {metric.alarm.name for metric in metric_rows().values() if metric.alarm} | alarm_rows().keys()
CODE = [line.strip() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
INLINE = [
    " ".join(text.split()) for text in re.findall(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"```.*?```", "", PAGE, flags=re.S))
]
# Said by the AWS CLI itself, no operation of an API.
OWN_COMMANDS_OF_THE_CLI = {("logs", "tail")}


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def commands(program: str) -> list[list[str]]:
    """What follows the name of a program, in code and in sentences."""
    texts = [text.removeprefix(".venv/bin/") for text in (*CODE, *INLINE)]
    return [shlex.split(text)[1:] for text in texts if text.startswith(f"{program} ")]


@pytest.mark.parametrize("alarm", sorted(ALARMS))
def test_each_alarm_has_its_section(alarm: str) -> None:
    assert HEADINGS.count(alarm) == 1
    section = PAGE.partition(f"\n### {alarm}\n")[2].partition("\n### ")[0]
    assert len(section) > 100


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_each_link_leads_somewhere(target: str) -> None:
    path, _, fragment = target.partition("#")
    page = (DOCS / path).read_text() if path else PAGE
    if fragment:
        assert fragment in {anchor(heading) for heading in re.findall(r"^#+ (.*)$", page, re.M)}


def test_every_command_of_ours_is_one_that_there_is() -> None:
    """With options that it has; the parser ends the process for any other."""
    found = commands("spotwright")
    assert {"plan", "catalog", "replay", "pause", "resume", "uninstall"} <= {command[0] for command in found}
    parser, _ = build_parser()
    for command in found:
        parser.parse_args(command)


def test_every_command_of_aws_is_one_that_there_is() -> None:
    session = botocore.session.get_session()
    found = commands("aws")
    assert len(found) > 10
    for service, operation, *arguments in found:
        if (service, operation) in OWN_COMMANDS_OF_THE_CLI:
            continue
        model = session.get_service_model(service)
        operations = {xform_name(name, "-"): name for name in model.operation_names}
        shape = model.operation_model(operations[operation]).input_shape
        assert shape is not None
        members = {xform_name(name, "-") for name in shape.members} | {"query"}
        given = {argument.removeprefix("--") for argument in arguments if argument.startswith("--")}
        assert given <= members, (service, operation)


def test_every_log_group_is_one_of_a_function() -> None:
    named = set(re.findall(r"/aws/lambda/Spotwright-main-(\w+)", PAGE))
    assert named
    assert named <= {spec.name for spec in (*QUEUE_FUNCTIONS, INSTALL)}


def test_every_message_that_is_looked_for_is_one_that_is_written() -> None:
    messages = [line.message for line in log_line_rows().values()]
    sought = re.findall(r'\$\.message = "([^"*]+)\*?"', PAGE)
    assert sought
    for text in sought:
        assert any(message.startswith(text) for message in messages), text


def test_alarms_point_at_messages_that_are_written() -> None:
    messages = [line.message for line in log_line_rows().values()]
    rows = [metric.alarm for metric in metric_rows().values() if metric.alarm] + list(alarm_rows().values())
    quoted = [text for row in rows for text in re.findall(r'log lines? "([^"]+)"', row.remedy)]
    assert len(quoted) > 3
    for text in quoted:
        assert any(message.startswith(text) for message in messages), text


def test_events_that_are_named_are_recorded() -> None:
    reasons = {event.reason for event in event_rows().values()}
    named = {"FailedScheduling", "FailedDraining", "LaunchesHeldBack", "DisruptionBlocked", "Unconsolidatable"}
    assert named <= reasons
    assert all(reason in PAGE for reason in named)


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/runbook.md)" in (DOCS.parent / "README.md").read_text()
