"""When rows expire that no reader deletes."""

from datetime import UTC, datetime, timedelta

from spotwright.adapters.aws.dynamodb.items import encode_refused_evictions
from spotwright.lifecycle.refused_evictions import RefusedEvictions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_what_a_budget_refuses_expires_an_hour_after_it_was_asked_for() -> None:
    """In epoch seconds, as DynamoDB reads it."""
    refused = RefusedEvictions("default", ("api",), ((),), True, retry_at_ms=int(NOW.timestamp()) * 1000)
    item = encode_refused_evictions(refused, "dev")
    assert int(item["expires"]["N"]) == (NOW + timedelta(hours=1)).timestamp()
    assert item["sk"]["S"] == "refused#default/api/ready"
