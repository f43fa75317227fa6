"""AWS clients that call this very process, for the parts that act with somebody's rights."""

import json
from collections import OrderedDict
from functools import cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import JSONFileLoader, Loader

from local.aws.emulator import Emulator
from local.aws.sts.callers import Credentials

CONFIG = Config(retries={"total_max_attempts": 3}, connect_timeout=5, read_timeout=60)


class _OwnCopy(JSONFileLoader):
    """botocore's S3 client rewrites the paths in its service model; moto, which may share it, must not see that."""

    def load_file(self, file_path: str) -> Any:
        found = super().load_file(file_path)
        return None if found is None else json.loads(json.dumps(found), object_pairs_hook=OrderedDict)


@cache
def _session() -> boto3.Session:
    """Shared, so that each service model is read once."""
    session = botocore.session.Session()
    session.register_component("data_loader", Loader(file_loader=_OwnCopy()))
    return boto3.Session(botocore_session=session)


def create_client(emulator: Emulator, service: str, credentials: Credentials | None) -> Any:
    """A client with these credentials, or the administrator's."""
    keys = {
        "aws_access_key_id": credentials.access_key_id if credentials else "local-cloudformation",
        "aws_secret_access_key": credentials.secret_access_key if credentials else "local",
        "aws_session_token": credentials.session_token if credentials else None,
    }
    return _session().client(
        service,  # type: ignore[call-overload]
        region_name=emulator.region,
        endpoint_url=emulator.endpoint,
        config=CONFIG,
        **keys,
    )
