"""A function whose own credentials end under it: each service says so in its words, and another process is served."""

from pathlib import Path
from typing import Any

from local.aws.strictness import Rule
from tests.local.aws.serverless import eventually, run_local_aws

# Functions have no SDK here; who calls is read from the scope of the signature.
ASKS = """
import os, re, ssl, sys, urllib.error, urllib.request

BODIES = {
    "sts": ("application/x-www-form-urlencoded", b"Action=GetCallerIdentity&Version=2011-06-15"),
    "ec2": ("application/x-www-form-urlencoded", b"Action=DescribeSubnets&Version=2016-11-15"),
    "dynamodb": ("application/x-amz-json-1.0", b"{}"),
}

def handler(event, context):
    if event == "leave":
        sys.exit(1)
    kind, body = BODIES[event]
    scope = f"{os.environ['AWS_ACCESS_KEY_ID']}/20260101/{os.environ['AWS_REGION']}/{event}/aws4_request"
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        "Content-Type": kind, **({"X-Amz-Target": "DynamoDB_20120810.ListTables"} if event == "dynamodb" else {}),
    }
    try:
        request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"], body, headers)
        trusted = ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
        urllib.request.urlopen(request, context=trusted).read()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return [os.getpid(), *(re.findall("RequestExpired|ExpiredToken[A-Za-z]*", text) or [text])]
    return [os.getpid(), ""]
"""


def test_credentials_expire_under_a_process_and_the_next_one_has_new_ones(tmp_path: Path) -> None:
    with run_local_aws(tmp_path) as aws:
        aws.control("POST", "/_local/strictness", {Rule.FUNCTION_SESSION_EXPIRY.value: True})
        aws.function("asks", ASKS)

        def stop_clock(stopped: bool) -> None:
            """No session ends meanwhile, however long a process takes to start."""
            aws.control("POST", "/_local/strictness/clock", {"stopped": stopped})

        def code(service: str) -> Any:
            return aws.invoke("asks", service)[0][1]

        stop_clock(True)
        assert code("sts") == ""
        stop_clock(False)
        eventually(lambda: code("sts") == "ExpiredToken", what="the end of the session")
        assert [code("ec2"), code("dynamodb")] == ["RequestExpired", "ExpiredTokenException"]
        before = aws.invoke("asks", "sts")[0][0]
        stop_clock(True)
        aws.invoke("asks", "leave")
        after, answer = aws.invoke("asks", "sts")[0]
        assert (after != before, answer) == (True, "")
