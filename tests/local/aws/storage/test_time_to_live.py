"""Items whose time to live is over are deleted, later."""

import time

from tests.local.aws.conftest import Aws
from tests.local.aws.serverless import eventually


def test_expired_items_go_away(aws: Aws) -> None:
    dynamodb = aws.client("dynamodb")
    dynamodb.create_table(
        TableName="fading",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.update_time_to_live(
        TableName="fading", TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"}
    )
    for name, expires in (("old", time.time() - 5), ("new", time.time() + 500)):
        item = {"pk": {"S": name}, "sk": {"S": "x"}, "expires": {"N": str(int(expires))}}
        dynamodb.put_item(TableName="fading", Item=item)

    def left() -> list[str]:
        return sorted(item["pk"]["S"] for item in dynamodb.scan(TableName="fading")["Items"])

    assert left() == ["new", "old"]
    eventually(lambda: left() == ["new"], 90)
