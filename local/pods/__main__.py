"""`python -m local.pods`: runs the containers of chosen pods of the local cluster as processes."""

import argparse
import json
import signal
import sys
import threading
import time
from pathlib import Path

from local.kubernetes.api import KubernetesApi
from local.pods.credentials import PodIdentityAgent
from local.pods.runner import PodRunner, RunnerSettings
from local.processes import Processes

STEP_SECONDS = 1.0
# Each look goes over all pods, which change all the time in a busy cluster.
TOGETHER_SECONDS = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aws", required=True, help="endpoint of the local AWS")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--directory", type=Path, required=True, help="a folder per pod is made here")
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--commands", type=json.loads, required=True, help="JSON: image name to command")
    arguments = parser.parse_args()
    settings = RunnerSettings(arguments.directory, arguments.kubeconfig, arguments.region, arguments.commands)
    api = KubernetesApi(arguments.kubeconfig)
    credentials = PodIdentityAgent(api, arguments.aws, arguments.cluster)
    threading.Thread(target=credentials.serve_forever, name="credentials", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Processes(arguments.logs) as processes:
        runner = PodRunner(api, settings, processes, credentials)
        while True:
            runner.reconcile()
            runner.changed.wait(STEP_SECONDS)
            time.sleep(TOGETHER_SECONDS)
            runner.changed.clear()


if __name__ == "__main__":
    main()
