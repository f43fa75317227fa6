"""One local AWS process for the whole folder, and short ways to deploy functions into it."""

from collections.abc import Iterator

import pytest

from tests.local.aws_serverless.driver import Aws, started


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with started(tmp_path_factory.mktemp("aws")) as running:
        yield running
