"""What `spotwright replay` says of a decision that is not stored."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotwright import cli
from spotwright.adapters.aws import clients, cloudformation

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Bucket:
    """S3 with these keys, each stored an hour after the one before; a page holds three."""

    def __init__(self, keys: list[str]) -> None:
        self._stored = [{"Key": key, "LastModified": AT + timedelta(hours=number)} for number, key in enumerate(keys)]

    def get_object(self, *, Bucket: str, Key: str) -> Any:
        raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "The specified key does not exist."}}, "GetObject")

    def get_paginator(self, operation: str) -> "Bucket":
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:
        matching = [item for item in self._stored if item["Key"].startswith(Prefix)]  # type: ignore[attr-defined]
        yield {}
        for start in range(0, len(matching), 3):
            yield {"Contents": matching[start : start + 3]}


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([], ["cluster prod has no decision 'nosuch', and none is stored for it"]),
        (["decisions/other/1.json"], ["cluster prod has no decision 'nosuch', and none is stored for it"]),
        (
            [f"decisions/prod/{number}.json" for number in range(8)],
            [
                "cluster prod has no decision 'nosuch'; `last` is the newest committed one, and stored last were",
                "  decisions/prod/7.json  2026-01-02T10:04:05Z",
                "  decisions/prod/6.json  2026-01-02T09:04:05Z",
                "  decisions/prod/5.json  2026-01-02T08:04:05Z",
                "  decisions/prod/4.json  2026-01-02T07:04:05Z",
                "  decisions/prod/3.json  2026-01-02T06:04:05Z",
            ],
        ),
    ],
)
def test_the_newest_decisions_are_named_where_there_is_none_of_that_name(
    stored: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clients, "client", lambda service, **_: Bucket(stored))
    monkeypatch.setattr(cloudformation, "stack_outputs", lambda *_: {"BucketName": "bucket", "TableName": "table"})
    assert cli.main(["replay", "nosuch", "--cluster", "prod"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(said[0])
    assert [line.rstrip() for line in lines[1:]] == said[1:]
    assert "NoSuchKey" not in "".join(lines)
