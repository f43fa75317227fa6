"""Which decision `spotwright replay` takes, and what it says where there is none of that name."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError

from spotwright import cli
from spotwright.adapters.aws import clients, cloudformation
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.cli.inputs import stored_decision
from spotwright.cli.inputs.stored_decision import decision_key

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Bucket:
    """S3 with these keys, each stored an hour after the one before; a page holds three. ``ids``: of decisions."""

    def __init__(self, keys: list[str], ids: dict[str, str] | None = None) -> None:
        self._ids = ids or {}
        self._stored = [{"Key": key, "LastModified": AT + timedelta(hours=number)} for number, key in enumerate(keys)]

    def get_object(self, *, Bucket: str, Key: str) -> Any:
        if Key in self._ids:
            return {"Body": io.BytesIO(json.dumps({"id": self._ids[Key], "kind": "provision"}).encode())}
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
                "    decisions/prod/7.json  2026-01-02T10:04:05Z",
                "    decisions/prod/6.json  2026-01-02T09:04:05Z",
                "    decisions/prod/5.json  2026-01-02T08:04:05Z",
                "    decisions/prod/4.json  2026-01-02T07:04:05Z",
                "    decisions/prod/3.json  2026-01-02T06:04:05Z",
            ],
        ),
    ],
)
def test_the_newest_decisions_are_named_where_there_is_none_of_that_name(
    stored: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clients, "client", lambda service, **_: Bucket(stored))
    monkeypatch.setattr(cloudformation, "cluster_outputs", lambda *_: {"BucketName": "bucket", "TableName": "table"})
    assert cli.main(["replay", "nosuch", "--cluster", "prod"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(said[0])
    assert [line.rstrip() for line in lines[1:]] == said[1:]
    assert "NoSuchKey" not in "".join(lines)


IDS = {
    "decisions/prod/11aa22.json": "bcb35587be46b20e",
    "decisions/prod/33bb44.json": "bcb3ffff00000000",
    # Decided twice from the same snapshot, the second time by other code.
    "decisions/prod/55cc66.json": "0123456789abcdef",
    "decisions/prod/77dd88.json": "0123456789abcdef",
    "decisions/prod/99ee00.json": "77dd0000000000aa",
    "decisions/prod/abab00.json": "",
}


@pytest.fixture
def blobs() -> S3Blobs:
    return S3Blobs(cast("S3Client", Bucket(list(IDS), IDS)), bucket="state", cluster="prod")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("bcb35587be46b20e", "decisions/prod/11aa22.json"),
        ("bcb35", "decisions/prod/11aa22.json"),
        ("bcb3f", "decisions/prod/33bb44.json"),
        ("33bb44.json", "decisions/prod/33bb44.json"),
        ("33bb", "decisions/prod/33bb44.json"),
        ("0123456789abcdef", "decisions/prod/77dd88.json"),
        ("01234", "decisions/prod/77dd88.json"),
        ("decisions/prod/55cc66.json", "decisions/prod/55cc66.json"),
    ],
)
def test_a_decision_is_named_by_key_or_id_or_the_beginning_of_either(text: str, key: str, blobs: S3Blobs) -> None:
    assert decision_key(blobs, text, "prod") == key


@pytest.mark.parametrize(
    ("text", "named"), [("bcb3", ["bcb3ffff00000000", "bcb35587be46b20e"]), ("77dd", ["77dd0000000000aa", "77dd88"])]
)
def test_what_begins_several_names_them_all(text: str, named: list[str], blobs: S3Blobs) -> None:
    with pytest.raises(cli.InputError) as refused:
        decision_key(blobs, text, "prod")
    said = str(refused.value)
    assert said.startswith(f"'{text}' is the beginning of 2 decisions of cluster prod:")
    assert all(name in said for name in named)


@pytest.mark.parametrize("text", ["bcb", "ffff", "decisions/prod/1.json", "../x", ""])
def test_what_names_none_is_answered_with_the_newest_and_their_ids(text: str, blobs: S3Blobs) -> None:
    with pytest.raises(cli.InputError) as refused:
        decision_key(blobs, text, "prod")
    assert "  77dd0000000000aa  decisions/prod/99ee00.json  2026-01-02T07:04:05Z" in str(refused.value)


def test_no_more_than_the_newest_are_read(blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_decision, "MOST_READ", 3)
    with pytest.raises(cli.InputError):
        decision_key(blobs, "bcb35587be46b20e", "prod")
