"""Functions and pods call over TLS; who does not may go on without."""

import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import certifi
import pytest

from local.aws.strictness import Rule
from tests.local.aws.serverless import REGION, Aws, zip_files

PEM = "-----BEGIN CERTIFICATE-----"
SHOW = """
import os

def handler(event, context):
    bundle = os.environ.get("AWS_CA_BUNDLE")
    return {"endpoint": os.environ["AWS_ENDPOINT_URL"], "bundle": bundle and open(bundle).read()}
"""


def environment(aws: Aws) -> dict[str, str]:
    return dict(aws.control("GET", "/_local/tls")["environment"])


def status(url: str, trusted: str) -> int:
    context = ssl.create_default_context(cafile=trusted)
    with urllib.request.urlopen(f"{url}/_local/health", context=context, timeout=60) as answer:
        return int(answer.status)


def test_a_port_speaks_with_tls_and_without(aws: Aws) -> None:
    secure = environment(aws)
    assert secure["AWS_ENDPOINT_URL"] == aws.endpoint.replace("http:", "https:")
    assert status(secure["AWS_ENDPOINT_URL"], secure["AWS_CA_BUNDLE"]) == 200
    assert aws.control("GET", "/_local/health")


def test_who_trusts_others_is_not_served(aws: Aws) -> None:
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        status(environment(aws)["AWS_ENDPOINT_URL"], certifi.where())


def test_a_client_that_says_nothing_keeps_nobody_waiting(aws: Aws) -> None:
    address = urlsplit(aws.endpoint)
    with socket.create_connection((str(address.hostname), address.port or 0)) as silent:
        secure = environment(aws)
        assert status(secure["AWS_ENDPOINT_URL"], secure["AWS_CA_BUNDLE"]) == 200
        assert silent.fileno() > 0


def test_an_object_that_is_sent_in_chunks_is_stored_whole(aws: Aws) -> None:
    """Over TLS the SDK signs no body, and sends it in chunks with a checksum at the end."""
    secure = environment(aws)
    s3: Any = boto3.client(
        "s3",
        endpoint_url=secure["AWS_ENDPOINT_URL"],
        verify=secure["AWS_CA_BUNDLE"],
        region_name=REGION,
        aws_access_key_id="local-admin",
        aws_secret_access_key="local-admin",
    )
    s3.create_bucket(Bucket="chunks", CreateBucketConfiguration={"LocationConstraint": REGION})
    content = bytes(range(256)) * 10_000
    s3.put_object(Bucket="chunks", Key="catalog", Body=content)
    assert s3.get_object(Bucket="chunks", Key="catalog")["Body"].read() == content


def layer(aws: Aws, name: str, files: dict[str, str]) -> str:
    made = aws.client("lambda").publish_layer_version(LayerName=name, Content={"ZipFile": zip_files(files)})
    return str(made["LayerVersionArn"])


def test_a_function_trusts_what_its_sdk_brings_or_what_it_names_and_the_local_aws(aws: Aws) -> None:
    files = {"python/certifi/cacert.pem": "of the sdk", "own.pem": "of its own"}
    layers = [layer(aws, "bundles", files)]
    aws.function("trusts-its-sdk", SHOW, Layers=layers)
    aws.function("names-its-own", SHOW, Layers=layers, Environment={"Variables": {"AWS_CA_BUNDLE": "/opt/own.pem"}})
    aws.function("trusts-nothing-else", SHOW)

    def bundle(name: str) -> str:
        return str(aws.invoke(name)[0]["bundle"])

    assert bundle("trusts-its-sdk").startswith(f"of the sdk\n{PEM}")
    assert bundle("names-its-own").startswith(f"of its own\n{PEM}")
    assert bundle("trusts-nothing-else").startswith(Path(certifi.where()).read_text())


def test_without_the_rule_functions_call_without_tls(aws: Aws) -> None:
    def asked(strict: bool) -> dict[str, Any]:
        aws.control("POST", "/_local/strictness", {Rule.TLS.value: strict})
        aws.function(f"calls-{strict}".lower(), SHOW)
        return dict(aws.invoke(f"calls-{strict}".lower())[0])

    assert asked(False) == {"endpoint": aws.endpoint, "bundle": None}
    assert asked(True)["endpoint"] == aws.endpoint.replace("http:", "https:")
