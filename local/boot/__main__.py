"""`python -m local.boot`: boots the instances of the local AWS into the local Kubernetes cluster."""

import argparse
import sys
import time
from pathlib import Path

from local.boot.agent import OUTSIDE, Agent, Delays
from local.boot.facts import Facts, FactsUnavailable
from local.boot.record import Record
from local.kubernetes.api import Api

POLL_SECONDS = 0.5
DEFAULTS = Delays()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aws", required=True, help="endpoint of the local AWS")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--boot-seconds", type=float, default=DEFAULTS.boot)
    parser.add_argument("--ready-seconds", type=float, default=DEFAULTS.ready)
    parser.add_argument("--removal-seconds", type=float, default=DEFAULTS.removal)
    arguments = parser.parse_args()
    delays = Delays(arguments.boot_seconds, arguments.ready_seconds, arguments.removal_seconds)
    facts = Facts(arguments.aws, arguments.cluster, arguments.region)
    agent = Agent(facts, Api(arguments.kubeconfig), Record(arguments.logs), delays)
    while True:
        try:
            agent.step()
        except (FactsUnavailable, *OUTSIDE) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
