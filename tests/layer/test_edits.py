"""What the layer's copies of libraries do differently is what no function does; the rest they do as before."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from layers.core import edits
from layers.core.contents import CALLS
from tests.layer.conftest import Python

URLS = (
    "https://ABCD.gr7.eu-central-1.eks.amazonaws.com/api/v1/pods?limit=500",
    "http://127.0.0.1:8080/x",
    "https://[2001:db8::1]:443/a%20b",
    "https://[::1]/",
    "https://[fe80::1%25eth0]:6443/version",
    "https://[::ffff:10.0.0.1]/",
    "https://user@host:1/",
    "https://[nonsense]/",
    "https://[12]/",
    "https://host:notaport/",
)


def _here(code: str) -> str:
    """The same with the libraries as they come."""
    environment = {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_EC2_METADATA_DISABLED": "true"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_addresses_are_read_as_before(python: Python) -> None:
    code = f"""
from urllib3.util.url import parse_url
from urllib3.exceptions import LocationParseError
from botocore.utils import is_valid_endpoint_url, is_valid_ipv6_endpoint_url
for url in {URLS!r}:
    try: print(tuple(parse_url(url)))
    except LocationParseError as error: print('refused')
    try: print(is_valid_endpoint_url(url), is_valid_ipv6_endpoint_url(url))
    except ValueError: print('no url')
"""
    assert python(code) == _here(code)


TIMES = (
    "2026-11-22T05:06:04Z",
    "2026-11-22T05:06:04.123456Z",
    "2026-11-22T05:06:04.123Z",
    "2026-11-22T05:06:04+09:00",
    "2026-11-22T05:06:04",
    "Sun, 22 Nov 2026 05:06:04 GMT",
    "2026-11-22 05:06:04 UTC",
    "20261122T050604Z",
    "2026-11-22",
    "1795323964",
    "1795323964.5",
    "nonsense",
    "2026-13-01T00:00:00Z",
)


def test_times_are_read_and_written_as_before(python: Python) -> None:
    """As instants: which zone a time is told in is nobody's matter."""
    code = f"""
from datetime import datetime, UTC
from botocore.utils import parse_timestamp, parse_to_aware_datetime
from botocore.serialize import Serializer
for text in (*{TIMES!r}, 1795323964):
    try: print(parse_to_aware_datetime(parse_timestamp(text)).astimezone(UTC).isoformat())
    except ValueError: print('no time')
for form in ('iso8601', 'unixtimestamp', 'rfc822'):
    write = getattr(Serializer(), '_timestamp_' + form)
    print(write(datetime(2026, 11, 22, 5, 6, 4, tzinfo=UTC)))
from botocore.credentials import _local_now
print(abs(_local_now().timestamp() - datetime.now(UTC).timestamp()) < 60)
"""
    assert python(code) == _here(code)


@pytest.mark.parametrize(
    "variables",
    [{}, {"HTTPS_PROXY": "http://proxy:3128"}, {"https_proxy": "http://proxy:3128", "no_proxy": "amazonaws.com"}],
)
def test_proxies_are_those_of_the_environment(python: Python, variables: dict[str, str]) -> None:
    code = f"""
import os
os.environ |= {variables!r}
from botocore.utils import get_environ_proxies
from kubernetes.client import configuration
for url in ('https://ec2.eu-central-1.amazonaws.com/', 'https://10.0.0.1/', 'http://127.0.0.1:1/'):
    print(sorted(get_environ_proxies(url).items()))
print(configuration.Configuration(host='https://api').proxy)
"""
    assert python(code) == _here(code)


def test_profiles_and_what_other_programs_print_are_read_as_before(python: Python, tmp_path: Path) -> None:
    printed = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2999-01-01T00:00:00Z"}
    (tmp_path / "keys.json").write_text(json.dumps(printed))
    profiles = f"[default]\nregion = eu-west-3\ncredential_process = cat {tmp_path}/keys.json\n[profile other]\n"
    (tmp_path / "config").write_text(profiles)
    code = f"""
import os
os.environ['AWS_CONFIG_FILE'] = {str(tmp_path / "config")!r}
import botocore.session
session = botocore.session.get_session()
credentials = session.get_credentials()
print(session.available_profiles, session.full_config['profiles'])
print(credentials.method, credentials.get_frozen_credentials()[:2])
"""
    assert python(code) == _here(code)
    assert "custom-process" in python(code)


# Endpoint and handlers by service, of all services in one process: reading botocore is what takes the time.
KNOWN = f"""
import botocore.session, json
stages = ('provide-client-params', 'before-parameter-build', 'before-endpoint-resolution', 'before-call',
    'request-created', 'choose-signer', 'before-sign', 'before-send', 'needs-retry', 'before-parse', 'after-call')
known = {{}}
for service, calls in {CALLS!r}.items():
    client = botocore.session.get_session().create_client(
        service, region_name='eu-central-1', aws_access_key_id='a', aws_secret_access_key='b')
    seen = []
    for call in calls:
        for stage in stages:
            event = f'{{stage}}.{{client.meta.service_model.service_id.hyphenize()}}.{{call}}'
            found = client.meta.events._emitter._handlers.prefix_search(event)
            names = [getattr(one, '__name__', type(one).__name__) for one in found]
            # For calls that look for their endpoint first, of which the reduced model has none.
            seen.append([event, [name for name in names if name != 'block_endpoint_discovery_required_operations']])
    known[service] = [client.meta.endpoint_url, seen]
print(json.dumps(known))
"""


@pytest.fixture(scope="module")
def known(python: Python) -> tuple[dict[str, object], dict[str, object]]:
    """In the layer, and in the libraries as they come."""
    return json.loads(python(KNOWN)), json.loads(_here(KNOWN))


@pytest.mark.parametrize("service", CALLS)
def test_clients_know_the_same_endpoints_and_hooks(
    known: tuple[dict[str, object], dict[str, object]], service: str
) -> None:
    """Every handler that a call of ours meets is still there, in its order."""
    edited, original = known
    assert edited[service] == original[service]


def test_a_bucket_is_addressed_as_before(python: Python) -> None:
    code = """
import botocore.session
for endpoint in (None, 'http://127.0.0.1:5000'):
    for region in ('eu-central-1', 'us-east-1', 'cn-north-1', 'us-gov-west-1'):
        client = botocore.session.get_session().create_client('s3', region_name=region, endpoint_url=endpoint,
            aws_access_key_id='a', aws_secret_access_key='b')
        for bucket in ('spotwright-main-1', 'with.dots', 'UPPER'):
            url = client.generate_presigned_url('get_object', Params={'Bucket': bucket, 'Key': 'a/b c'})
            print(url.partition('?')[0])
"""
    assert python(code) == _here(code)


def test_roles_have_clients_of_their_own_in_one_session(python: Python) -> None:
    code = """
from spotwright.adapters import aws_sessions
own, role = aws_sessions.own_session(), aws_sessions.role_session('arn:aws:iam::123456789012:role/read')
print(own is role, own._credentials is role._credentials, type(role._credentials).__name__)
print(own.get_component('data_loader') is role.get_component('data_loader'))
"""
    assert python(code) == "False False DeferredRefreshableCredentials\nTrue\n"


def test_a_library_that_changed_is_named(tmp_path: Path) -> None:
    for name in (*edits.REPLACED, *edits.CHANGED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("other = 1\n")
    with pytest.raises(ValueError, match=r"url\.py has .* 0 times"):
        edits.edit(tmp_path, CALLS)
    (tmp_path / "typing_extensions.py").unlink()
    with pytest.raises(FileNotFoundError, match=r"typing_extensions\.py"):
        edits.edit(tmp_path, CALLS)


def test_a_function_collects_again_once_it_has_started(python: Python) -> None:
    code = "import gc\nfrom spotwright import start\nprint(gc.isenabled())\nstart.over()\nprint(gc.isenabled())"
    assert python(code) == "False\nTrue\n"
