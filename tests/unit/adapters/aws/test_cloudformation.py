"""The outputs of a deployed stack."""

from typing import Any

import pytest

from spotwright.adapters.aws.cloudformation import cluster_outputs, stack_outputs
from spotwright.errors import NotFound


class Stacks:
    """CloudFormation with a single stack."""

    def __init__(self, **outputs: str) -> None:
        self.outputs = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]

    def describe_stacks(self, **_: str) -> dict[str, Any]:
        return {"Stacks": [{"Outputs": self.outputs} if self.outputs else {}]}


def test_outputs_are_read_by_name() -> None:
    client: Any = Stacks(TableName="table", BucketName="bucket")
    assert stack_outputs(client, "cell") == {"TableName": "table", "BucketName": "bucket"}


@pytest.mark.parametrize("client", [Stacks(), Stacks(BucketName="site")])
def test_a_stack_of_somebody_else_is_said_to_be_none_of_ours(client: Any) -> None:
    with pytest.raises(NotFound) as refused:
        stack_outputs(client, "website")
    assert str(refused.value) == ("stack website has no output TableName: it is not Spotwright's, or not deployed yet")


@pytest.mark.parametrize("clusters", [{"Clusters": "blue,green"}, {}])
def test_a_cluster_of_the_stack_is_known_also_where_an_earlier_version_does_not_say(clusters: dict[str, str]) -> None:
    client: Any = Stacks(TableName="table", **clusters)
    assert cluster_outputs(client, "cell", "green")["TableName"] == "table"


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("gren", "stack cell has no cluster gren (did you mean green?); it has blue, green"),
        ("production", "stack cell has no cluster production; it has blue, green"),
    ],
)
def test_a_cluster_that_the_stack_does_not_have_is_refused_with_the_nearest_name(cluster: str, said: str) -> None:
    client: Any = Stacks(TableName="table", Clusters="blue,green")
    with pytest.raises(NotFound) as refused:
        cluster_outputs(client, "cell", cluster)
    assert str(refused.value) == said
