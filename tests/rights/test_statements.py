"""Each IAM statement of a cluster's two roles is needed by the scenario it names.

The scenarios run through our own adapters against the local AWS under the two roles; what they asked of IAM is
recorded. Then each statement is taken away: something its scenario asked must be refused.
"""

import pytest

from tests.rights.recording import Recording, denied_decisions, role_of
from tests.rights.scenarios import SCENARIOS, grants

STATEMENTS = [(role, grant.sid) for role, several in grants().items() for grant in several]
# CreateFleet asks for RunInstances on what it launches; tags at birth are asked for under CreateTags.
ACTIONS = [
    (role, grant.sid, action) for role, several in grants().items() for grant in several for action in grant.actions
]


def test_every_statement_names_a_scenario_and_every_scenario_is_named() -> None:
    assert {grant.needed_by for several in grants().values() for grant in several} == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_needs_no_more_than_the_roles(recording: Recording, scenario: str) -> None:
    questions = recording.decisions[scenario]
    assert questions
    for role, statements in recording.grants.items():
        assert denied_decisions(statements, [decision for decision in questions if role_of(decision) == role]) == []


@pytest.mark.parametrize(("role", "sid"), STATEMENTS)
def test_without_a_statement_its_scenario_fails(recording: Recording, role: str, sid: str) -> None:
    (statement,) = [grant for grant in recording.grants[role] if grant.sid == sid]
    rest = [grant for grant in recording.grants[role] if grant.sid != sid]
    questions = [decision for decision in recording.decisions[statement.needed_by] if role_of(decision) == role]
    assert denied_decisions(rest, questions), f"{sid} is not needed for: {statement.needed_by}"


@pytest.mark.parametrize(("role", "sid", "action"), ACTIONS)
def test_without_an_action_something_fails(recording: Recording, role: str, sid: str, action: str) -> None:
    """No statement allows what nothing calls."""
    (statement,) = [grant for grant in recording.grants[role] if grant.sid == sid]
    rest = [grant for grant in recording.grants[role] if grant.sid != sid]
    less = tuple(one for one in statement.actions if one != action)
    kept = [type(statement)(sid, less, statement.resources, statement.conditions)] if less else []
    every = [
        decision for questions in recording.decisions.values() for decision in questions if role_of(decision) == role
    ]
    assert denied_decisions([*rest, *kept], every), f"nothing calls {action} under {sid}"


@pytest.mark.parametrize("kind", ["image", "security-group", "subnet", "capacity-reservation", "placement-group"])
def test_a_launch_needs_each_kind_of_thing_that_a_class_may_choose(recording: Recording, kind: str) -> None:
    (statement,) = [grant for grant in recording.grants["act"] if grant.sid == "LaunchInto"]
    rest = [grant for grant in recording.grants["act"] if grant.sid != "LaunchInto"]
    fewer = tuple(resource for resource in statement.resources if not resource.endswith(f"{kind}/*"))
    kept = type(statement)(statement.sid, statement.actions, fewer, statement.conditions)
    questions = [decision for decision in recording.decisions["launch"] if role_of(decision) == "act"]
    assert denied_decisions([*rest, kept], questions)
