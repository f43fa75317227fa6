"""With the layer's reduced models a client addresses a service as with the models that botocore comes with."""

import json
import subprocess
import sys

import pytest

from layers.core.contents import CALLS
from tests.layer.conftest import Python

REGIONS = ("eu-central-1", "us-east-1", "cn-north-1", "us-gov-west-1")

ENDPOINTS = f"""
import botocore.session, json
session = botocore.session.get_session()
found = {{}}
for service in {sorted(CALLS)!r}:
    for region in {REGIONS!r}:
        client = session.create_client(service, region_name=region, aws_access_key_id='a', aws_secret_access_key='b')
        found.setdefault(service, []).append(client.meta.endpoint_url)
print(json.dumps(found))
"""


def as_published(code: str) -> str:
    """What code prints with this environment's botocore, which has all models."""
    environment = {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def endpoints(python: Python) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """By service: in the layer, and with all models."""
    return json.loads(python(ENDPOINTS)), json.loads(as_published(ENDPOINTS))


@pytest.mark.parametrize("service", CALLS)
def test_clients_know_the_same_endpoints(
    endpoints: tuple[dict[str, list[str]], dict[str, list[str]]], service: str
) -> None:
    layer, published = endpoints
    assert layer[service] == published[service]


def test_a_bucket_is_addressed_the_same(python: Python) -> None:
    code = f"""
import botocore.session
for endpoint in (None, 'http://127.0.0.1:5000'):
    for region in {REGIONS!r}:
        client = botocore.session.get_session().create_client('s3', region_name=region, endpoint_url=endpoint,
            aws_access_key_id='a', aws_secret_access_key='b')
        for bucket in ('spotwright-main-1', 'with.dots', 'UPPER'):
            url = client.generate_presigned_url('get_object', Params={{'Bucket': bucket, 'Key': 'a/b c'}})
            print(url.partition('?')[0])
"""
    assert python(code) == as_published(code)
