"""These tests share the local AWS that functions are deployed to."""

import pytest

from tests.local.aws.serverless import Aws


@pytest.fixture(scope="session")
def aws(serverless_aws: Aws) -> Aws:
    return serverless_aws
