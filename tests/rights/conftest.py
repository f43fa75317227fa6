"""One local AWS in this process, the scenarios run once, and what they asked of IAM."""

from collections.abc import Iterator

import pytest

from local.aws import moto_setup

moto_setup.prepare("ap-northeast-2")

from tests.rights.recorded import Recorded, record  # noqa: E402
from tests.rights.scenarios import world_on  # noqa: E402


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with world_on(tmp_path_factory.mktemp("rights")) as world:
        yield record(world)
