"""For all tests: a property may take its time, since a busy machine is no bug; who shares a server shares a process."""

import signal
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

settings.register_profile("spotwright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spotwright")

# A script has its background jobs ignore SIGINT, and so would what they start, which tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders and files whose tests share what is slow to make: a local AWS, a control plane, templates, the layer, what is
# read of recorded tables.
# Each of these goes to one process; everything else goes by file. So do the end-to-end files that together take no
# longer than each of the others.
SHARED = {
    "tests/contract": "contract",
    "tests/infra": "infra",
    "tests/layer": "layer",
    "tests/local/aws": "local/aws",
    "tests/local/aws/cloudformation": "local/aws serverless",
    "tests/local/aws/event_source_mappings": "local/aws serverless",
    "tests/local/aws/eventbridge": "local/aws serverless",
    "tests/local/aws/functions": "local/aws serverless",
    "tests/local/aws/schedules": "local/aws serverless",
    "tests/local/boot/test_agent.py": "local/kubernetes",
    "tests/local/kubernetes": "local/kubernetes",
    "tests/local/pods": "local/kubernetes",
    "tests/rights": "rights",
    "tests/stored": "stored",
    "tests/manifests": "control plane",
    "tests/e2e/test_drift.py": "e2e/one after the other",
    "tests/e2e/test_capacity_without_pods.py": "e2e/one after the other",
    "tests/e2e/test_stack.py": "e2e/one after the other",
    "tests/forwarder/test_process.py": "control plane",
    "tests/functions/install/test_cluster.py": "control plane",
}


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """pytest-xdist's own, by what tests share. (Its marks for groups do nothing since pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePosixPath(nodeid.partition("::")[0])
        named = (SHARED[str(place)] for place in (path, *path.parents) if str(place) in SHARED)
        return next(named, str(path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)
