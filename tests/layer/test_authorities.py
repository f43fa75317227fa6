"""The SDK trusts AWS's certificate authorities, and reads no others."""

import re
import ssl
from pathlib import Path
from typing import Any

import botocore
import pytest

from layers.core.authorities import AUTHORITIES, FILE, PATH, write_authorities
from tests.layer.conftest import Python

BUNDLE = Path(botocore.__file__).with_name("cacert.pem")


def test_the_layer_has_the_named_authorities_as_botocore_has_them(layer: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(layer / FILE)
    subjects: list[Any] = [found["subject"] for found in context.get_ca_certs()]
    names = {value for subject in subjects for ((key, value),) in subject if key == "commonName"}
    assert names == set(AUTHORITIES)
    everything = BUNDLE.read_text()
    blocks = re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", (layer / FILE).read_text(), re.S)
    assert len(blocks) == len(AUTHORITIES)
    assert all(block in everything for block in blocks)


def test_the_sdk_goes_by_the_variable(python: Python, layer: Path) -> None:
    assert f"/opt/python/{FILE}" == PATH
    code = f"""
import os
os.environ["AWS_CA_BUNDLE"] = {str(layer / FILE)!r}
import botocore.session
client = botocore.session.get_session().create_client("sts", aws_access_key_id="a", aws_secret_access_key="b")
print(client._endpoint.http_session._verify)
"""
    assert python(code) == f"{layer / FILE}\n"


def test_an_authority_that_botocore_no_longer_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "botocore").mkdir()
    (tmp_path / "botocore/cacert.pem").write_text(BUNDLE.read_text().replace("Amazon Root CA 3", "Other"))
    with pytest.raises(ValueError, match="botocore has no Amazon Root CA 3 "):
        write_authorities(tmp_path)
