"""The real CDK CLI against the local AWS, and what the deployed stack says of itself."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3

from local.stack import Stack

ROOT = Path(__file__).parents[1]
FORWARDER_IMAGE = "spotwright-forwarder:local"
# How long one CDK command may take, in seconds; deploy builds the layer when it is not cached.
COMMAND_SECONDS = 1800


def forwarder_command(directory: Path) -> list[str]:
    """The command of the forwarder's container for a stack in a directory: its image's content, and Python alone."""
    python = str(sys._base_executable)  # type: ignore[attr-defined]
    return ["/usr/bin/env", f"PYTHONPATH={_image(directory)}", python, "-P", "-m", "forwarder"]


def _image(directory: Path) -> Path:
    return directory / "forwarder-image"


class CdkDeployment:
    """`cdk` for one local stack. Its home and its output lie in the stack's folder, so stacks do not meet.

    `context` is what cdk.json says of a deployment, `settings` the part of it that is the cluster's.
    """

    def __init__(self, stack: Stack, *, node_roles: Sequence[str]) -> None:
        self._stack = stack
        self._home = stack.directory / "cdk"
        self._home.mkdir(parents=True, exist_ok=True)
        self._synthesized = ""
        self._cloudformation = administrator_session(stack).client("cloudformation", endpoint_url=stack.aws_endpoint)
        self.settings: dict[str, str] = {}
        cluster = {"name": stack.cluster, "nodeRoles": list(node_roles), "forwarderImage": FORWARDER_IMAGE}
        self.context = {
            "cell": "main",
            "architecture": "x86_64",
            "removeDataOnDestroy": True,
            "clusters": [cluster | {"settings": self.settings}],
        }

    @property
    def stack_name(self) -> str:
        return f"Spotwright-{self.context['cell']}"

    def run_cdk(self, *arguments: str) -> str:
        """Run one command to its end; raises with its output when it fails."""
        # Bootstrapping needs no app, and outside the checkout the CLI finds none to synthesize.
        bare = arguments[0] == "bootstrap"
        command = [str(ROOT / "node_modules/.bin/cdk"), *arguments, *([] if bare else self._app())]
        done = subprocess.run(
            command,
            cwd=self._home if bare else ROOT,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        log = self._stack.logs / "cdk.log"
        with log.open("a") as file:
            file.write(f"$ cdk {' '.join(arguments)}\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            raise RuntimeError(f"cdk {' '.join(arguments)} failed ({done.returncode}); {log}:\n{done.stderr[-3000:]}")
        return done.stdout + done.stderr

    def bootstrap(self) -> None:
        self.run_cdk("bootstrap", f"aws://{self._stack.account}/{self._stack.region}")

    def synth(self) -> None:
        """Make the templates and assets of the context; until it changes, every command takes these."""
        self._synthesized = ""
        context = json.dumps(self.context)
        self.run_cdk("synth", "--quiet")
        self._synthesized = context

    def deploy(self) -> None:
        """Into an account that need not be bootstrapped; that and synthesis know nothing of each other."""
        with ThreadPoolExecutor() as beside:
            futures = [beside.submit(self.bootstrap), *([beside.submit(self.synth)] if self._is_stale() else [])]
            for future in futures:
                future.result()
            image = beside.submit(self._forwarder_image)
            self.run_cdk("deploy", "--require-approval", "never", "--progress", "events")
        image.result()

    def _forwarder_image(self) -> None:
        """What the image holds, where the pods' processes find it."""
        architecture, folder = str(self.context["architecture"]), str(_image(self._stack.directory))
        command = [sys.executable, "-m", "tools.forwarder_image", architecture, folder]
        subprocess.run(command, cwd=ROOT, env=self._environment(), timeout=COMMAND_SECONDS, check=True)

    def destroy(self) -> None:
        self.run_cdk("destroy", "--force")

    def _is_stale(self) -> bool:
        return self._synthesized != json.dumps(self.context)

    def _app(self) -> list[str]:
        """What the CLI works on: what was synthesized, or the app."""
        out = str(self._home / "out")
        if self._is_stale():
            return ["--output", out, "--context", "spotwright=" + json.dumps(self.context)]
        return ["--app", out]

    def outputs(self) -> dict[str, str]:
        """The stack's outputs by key; empty while it does not exist."""
        client = self._cloudformation
        try:
            stack = client.describe_stacks(StackName=self.stack_name)["Stacks"][0]
        except client.exceptions.ClientError:
            return {}
        return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs") or ()}

    def _environment(self) -> dict[str, str]:
        endpoint = {"AWS_ENDPOINT_URL_S3_FOR_CLOUDFORMATION": f"https://s3.{self._stack.region}.amazonaws.com"}
        own = {
            "HOME": str(self._home),
            "CI": "true",
            "CDK_DISABLE_VERSION_CHECK": "1",
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "true",
            "PATH": f"{ROOT / '.venv/bin'}:{ROOT / '.tools/uv/bin'}:{os.environ['PATH']}",
            "CDK_DEFAULT_ACCOUNT": self._stack.account,
            "CDK_DEFAULT_REGION": self._stack.region,
        }
        return os.environ.copy() | self._stack.environment() | endpoint | own


def administrator_session(stack: Stack) -> boto3.Session:
    """The local account's unrestricted keys."""
    return boto3.Session("local-admin", "local-admin", region_name=stack.region)
