"""Each IAM statement of a cluster's two roles is needed by the scenario it names.

The scenarios run through our own adapters against the local AWS under the two roles; what they asked of IAM is
recorded. Then each statement is taken away: something its scenario asked must be refused.
"""

import pytest

from tests.rights.recording import Recording, denied_decisions, role_of
from tests.rights.scenarios import SCENARIOS, grants

STATEMENTS = [(role, one.sid) for role, several in grants().items() for one in several]
# CreateFleet asks for RunInstances on what it launches; tags at birth are asked for under CreateTags.
ACTIONS = [(role, one.sid, action) for role, several in grants().items() for one in several for action in one.actions]


def test_every_statement_names_a_scenario_and_every_scenario_is_named() -> None:
    assert {one.needed_by for several in grants().values() for one in several} == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_needs_no_more_than_the_roles(recording: Recording, scenario: str) -> None:
    questions = recording.decisions[scenario]
    assert questions
    for role, statements in recording.grants.items():
        assert denied_decisions(statements, [one for one in questions if role_of(one) == role]) == []


@pytest.mark.parametrize(("role", "sid"), STATEMENTS)
def test_without_a_statement_its_scenario_fails(recording: Recording, role: str, sid: str) -> None:
    (statement,) = [one for one in recording.grants[role] if one.sid == sid]
    rest = [one for one in recording.grants[role] if one.sid != sid]
    questions = [one for one in recording.decisions[statement.needed_by] if role_of(one) == role]
    assert denied_decisions(rest, questions), f"{sid} is not needed for: {statement.needed_by}"


@pytest.mark.parametrize(("role", "sid", "action"), ACTIONS)
def test_without_an_action_something_fails(recording: Recording, role: str, sid: str, action: str) -> None:
    """No statement allows what nothing calls."""
    (statement,) = [one for one in recording.grants[role] if one.sid == sid]
    rest = [one for one in recording.grants[role] if one.sid != sid]
    less = tuple(one for one in statement.actions if one != action)
    kept = [type(statement)(sid, less, statement.resources, statement.conditions)] if less else []
    every = [one for questions in recording.decisions.values() for one in questions if role_of(one) == role]
    assert denied_decisions([*rest, *kept], every), f"nothing calls {action} under {sid}"


@pytest.mark.parametrize("kind", ["image", "security-group", "subnet", "capacity-reservation", "placement-group"])
def test_a_launch_needs_each_kind_of_thing_that_a_class_may_choose(recording: Recording, kind: str) -> None:
    (statement,) = [one for one in recording.grants["act"] if one.sid == "LaunchInto"]
    rest = [one for one in recording.grants["act"] if one.sid != "LaunchInto"]
    fewer = tuple(one for one in statement.resources if not one.endswith(f"{kind}/*"))
    kept = type(statement)(statement.sid, statement.actions, fewer, statement.conditions)
    questions = [one for one in recording.decisions["launch"] if role_of(one) == "act"]
    assert denied_decisions([*rest, kept], questions)
