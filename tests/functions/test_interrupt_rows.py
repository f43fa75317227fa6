"""Rows of notices that others write meanwhile, and credentials that expire while they are written."""

from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import NoticeRow
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event

SPOT = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"


def envelope(detail_type: str) -> dict[str, Any]:
    return {
        "version": "0", "id": f"of {detail_type}", "detail-type": detail_type, "source": "aws.ec2",
        "account": "123456789012", "time": "2026-01-05T09:00:00Z", "region": "ap-northeast-2", "resources": [],
        "detail": {"instance-id": "i-1"},
    }  # fmt: skip


def test_a_spot_warning_counts_although_lifecycle_saves_the_recommendation_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = load_handler("interrupt", world).handler
    handler(sqs_event([envelope(REBALANCE)]), Context())
    usual = world.state.save

    def save(row: NoticeRow) -> NoticeRow:
        monkeypatch.setattr(world.state, "save", usual)
        recommended = world.state.notice("i-1")
        assert recommended is not None
        usual(msgspec.structs.replace(recommended, phase="recommended", due=0))
        return usual(row)

    monkeypatch.setattr(world.state, "save", save)
    assert failed_messages(handler(sqs_event([envelope(SPOT)]), Context())) == []
    row = world.state.notice("i-1")
    assert row is not None
    assert (row.kind, row.phase) == ("spot_interrupted", "new")


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException"])
def test_expired_credentials_end_the_process_so_that_another_has_new_ones(world: World, code: str) -> None:
    world.effects.inject(Fault("state", "create", ApiError("the token has expired", code=code), times=9))
    with pytest.raises(SystemExit):
        load_handler("interrupt", world).handler(sqs_event([envelope(SPOT)]), Context())
