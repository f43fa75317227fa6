"""`python -m local.boot`: boots the instances of the local AWS into the local Kubernetes cluster."""

import argparse
import sys
import time
from pathlib import Path

from local.boot.agent import TRANSIENT_ERRORS, BootAgent, BootDelays, NodeWrites
from local.boot.aws_reader import AwsReader, AwsUnavailable
from local.boot.log import BootLog
from local.kubernetes.api import KubernetesApi

POLL_SECONDS = 0.5
DEFAULTS = BootDelays()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aws", required=True, help="endpoint of the local AWS")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--boot-seconds", type=float, default=DEFAULTS.boot_seconds)
    parser.add_argument("--ready-seconds", type=float, default=DEFAULTS.ready_seconds)
    parser.add_argument("--removal-seconds", type=float, default=DEFAULTS.removal_seconds)
    parser.add_argument("--node-writes", type=NodeWrites, choices=list(NodeWrites), default=NodeWrites.IN_STEPS)
    arguments = parser.parse_args()
    delays = BootDelays(arguments.boot_seconds, arguments.ready_seconds, arguments.removal_seconds)
    aws = AwsReader(arguments.aws, arguments.cluster, arguments.region)
    agent = BootAgent(aws, KubernetesApi(arguments.kubeconfig), BootLog(arguments.logs), delays, arguments.node_writes)
    while True:
        try:
            agent.reconcile()
        except (AwsUnavailable, *TRANSIENT_ERRORS) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
