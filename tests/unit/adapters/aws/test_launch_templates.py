"""A launch template that was created is there, whether EC2 shows it at once, later, or does not answer."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from spotwright.adapters.aws.ec2 import instances
from spotwright.adapters.aws.ec2.instances import Ec2


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeLaunchTemplateVersions")


UNKNOWN, SLOW = error("InvalidLaunchTemplateName.NotFoundException"), error("RequestLimitExceeded")


class Client:
    """EC2 with ``answers`` to questions about the template's versions, the last one for ever; None = it is shown."""

    def __init__(self, *answers: ClientError | None) -> None:
        self.answers, self.asked, self._digest = answers, 0, ""

    def create_launch_template(self, **request: Any) -> dict[str, Any]:
        self._digest = request["VersionDescription"]
        return {"LaunchTemplate": {"LaunchTemplateId": "lt-1", "LatestVersionNumber": 1}}

    def get_paginator(self, _: str) -> "Client":
        return self

    def paginate(self, **_: Any) -> Iterator[dict[str, Any]]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if answer is not None:
            raise answer
        version = {"LaunchTemplateId": "lt-1", "VersionNumber": 1, "VersionDescription": self._digest}
        yield {"LaunchTemplateVersions": [version]}


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ((UNKNOWN, None), 2),
        ((UNKNOWN, UNKNOWN, UNKNOWN, None), 4),
        ((UNKNOWN,), 1 + len(instances._TEMPLATE_PAUSES_SECONDS)),
        ((UNKNOWN, SLOW), 2),
    ],
    ids=["at once", "later", "never", "no answer"],
)
def test_a_new_launch_template_is_awaited_until_ec2_shows_it(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[ClientError | None, ...], asked: int
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    client = Client(*answers)
    assert Ec2(cast("Any", client), cluster="c").ensure_launch_template("name", {}, {}) == ("lt-1", "1")
    assert client.asked == asked
