"""One local AWS in this process, the scenarios run once, and what they asked of IAM."""

from collections.abc import Iterator

import pytest

from local.aws import moto_setup

moto_setup.prepare("ap-northeast-2")

from tests.rights.recording import Recording, record  # noqa: E402
from tests.rights.scenarios import account_with_roles  # noqa: E402


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    with account_with_roles(tmp_path_factory.mktemp("rights")) as account:
        yield record(account)
