"""A forwarder that was admitted before its Pod Identity association counted makes room for another."""

import pytest

from spotwright.workflows.install.forwarder_pods import CREDENTIALS_SECONDS, await_credentials, log
from tests.functions.install.fakes import Deadline, Objects


@pytest.mark.parametrize("credentials", ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE"])
def test_a_pod_with_credentials_stays(credentials: str) -> None:
    objects = Objects(credentials=credentials)
    assert await_credentials(objects, "dev", Deadline(200))
    assert objects.deleted == []


def test_pods_without_are_deleted_until_one_has_them() -> None:
    objects = Objects(early_pods=3)
    assert await_credentials(objects, "dev", Deadline(200))
    assert (objects.deleted, objects.admitted) == (["Pod"] * 3, 4)


def test_after_a_minute_the_installation_goes_on_without(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, deadline = Objects(early_pods=1000), Deadline(200)
    # A handler that was imported before lets the lines go nowhere else.
    monkeypatch.setattr(log, "handlers", [caplog.handler])
    assert not await_credentials(objects, "dev", deadline)
    assert deadline.seconds == 200 - CREDENTIALS_SECONDS
    assert "forwarder's pods get no AWS credentials" in caplog.text
