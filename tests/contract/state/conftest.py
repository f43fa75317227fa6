"""The state of a cluster, as it is in memory and in DynamoDB."""

from collections.abc import Iterator

import pytest

from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeState
from spotwright.workflows.ports.state import StatePort
from tests.contract import tables
from tests.contract.conftest import LocalAws
from tests.contract.state.rows import NAMES


@pytest.fixture(params=["fake", "dynamodb"])
def state(request: pytest.FixtureRequest) -> Iterator[StatePort]:
    """The state of a cluster that nobody used before."""
    if request.param == "fake":
        yield FakeState(next(NAMES), Effects(Clock()))
        return
    table = request.getfixturevalue("table")
    aws: LocalAws = request.getfixturevalue("local_aws")
    yield DynamoState(aws.client("dynamodb"), table=table, cluster=next(NAMES))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def table(local_aws: LocalAws) -> str:
    return tables.create_table(local_aws.client("dynamodb"), "contract")
