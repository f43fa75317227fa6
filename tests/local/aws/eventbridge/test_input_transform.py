"""What a rule's target receives of an event."""

import json
from typing import Any

import pytest

from local.aws.eventbridge.input_transform import target_input


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"Input": '{"a": 1}'}, {"a": 1}),
        ({"InputPath": "$.detail"}, {"state": "on", "n": 3}),
        (
            {
                "InputTransformer": {
                    "InputPathsMap": {"s": "$.detail.state", "n": "$.detail.n"},
                    "InputTemplate": '{"text": "it is <s>", "state": <s>, "n": <n>, "rule": "<aws.events.rule-name>"}',
                }
            },
            None,
        ),
    ],
)
def test_targets_choose_their_input(target: dict[str, Any], expected: Any) -> None:
    event = {"time": "t", "detail": {"state": "on", "n": 3}}
    text = target_input(target, event, "arn:aws:events:r:1:rule/name")
    if expected is None:
        assert text == '{"text": "it is on", "state": on, "n": 3, "rule": "name"}'
    else:
        assert json.loads(text) == expected
