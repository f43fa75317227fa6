"""What a cell may do in the table of another: learn with it, and read or write nothing else."""

from datetime import UTC, datetime
from typing import Any

import aws_cdk as cdk
import msgspec
import pytest

from infra.config import Cluster, Config
from infra.state import State
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.errors import Denied
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.workflows.account import rate_limits
from tests.contract import tables
from tests.rights.recording import Recording
from tests.rights.scenarios import ACCOUNT, CLUSTER, NODE_ROLE, REGION, create_role, plain_grant, policy_document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
MARK = OfferingHealth("spot", "m5.large", "z1", NOW_MS, "InsufficientInstanceCapacity", failures=1)


@pytest.fixture(scope="module")
def client(recording: Recording) -> Any:
    """DynamoDB under the rights that ``lifecycle`` of another cell has in the table ``first``."""
    account = recording.account
    for name in ("first", "second"):
        tables.create_table(account.client("dynamodb"), name)
    stack = cdk.Stack(cdk.App(), "memory", env=cdk.Environment(account=ACCOUNT, region=REGION))
    config = Config((Cluster(CLUSTER, (NODE_ROLE,), "forwarder:1"),), memory_table="first")
    grant = plain_grant(State(stack, config, None).account_rows("BatchGetItem", "GetItem", "Query", "PutItem"))
    own = msgspec.json.decode(msgspec.json.encode(policy_document(grant)))
    return account.client("dynamodb", create_role(account, "memory", own))


def test_cells_learn_together(client: Any, recording: Recording) -> None:
    first = DynamoState(recording.account.client("dynamodb"), table="first", cluster="one")
    second = DynamoState(client, table="second", cluster="two", memory_table="first")
    second.save_offering_health(MARK)
    assert [health.key for health in first.offering_health(NOW_MS)] == [MARK.key]
    assert rate_limits.acquire(second, rate_limits.CREATE_FLEET, caller="k", now=NOW) == 0
    assert first.call_rate(rate_limits.CREATE_FLEET) is not None
    terminations = {rate_limits.TERMINATE_INSTANCES: 1, rate_limits.TERMINATED_INSTANCES: 2}
    assert rate_limits.acquire_all(second, terminations, caller="k", now=NOW) == 0
    assert len(first.call_rates(terminations)) == 2


def test_a_cell_sees_and_changes_no_other_row(client: Any) -> None:
    table = Table(client, "first")
    with pytest.raises(Denied):
        table.get("one", "cluster")
    with pytest.raises(Denied):
        table.get_rows("one", "cluster", "pause")
    with pytest.raises(Denied):
        list(table.query(KeyConditionExpression="pk = :p", ExpressionAttributeValues={":p": {"S": "one"}}))
    with pytest.raises(Denied):
        table.put_versioned({"pk": {"S": "one"}, "sk": {"S": "pause"}, "version": {"N": "1"}}, 0)
    with pytest.raises(Denied):
        table.put_all_versioned([({"pk": {"S": "one"}, "sk": {"S": "pause"}, "version": {"N": "1"}}, 0)])
