"""One execution environment: a process that serves one invocation at a time of one function version."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

from local.aws.emulator import Emulator
from local.aws.functions import packages
from local.aws.functions.log import FunctionLog
from local.aws.functions.networks import FunctionNetworks
from local.aws.functions.processor_share import Hold
from local.aws.functions.runtime_api import Invocation, RuntimeApi
from local.aws.functions.usage import UsageMeter
from local.aws.functions.versions import FunctionVersion
from local.aws.strictness import Rule
from local.aws.sts import callers
from local.aws.tls import Tls, trusted_by

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
# What AWS grants a process before its first invocation; a loaded laptop with cold files gets more where it may.
INIT_SECONDS, RELAXED_INIT_SECONDS = 10, 60
# A process is not given work so late that its credentials could end under it.
SESSION_SECONDS = 3600
LONGEST_LIFE_SECONDS = 40 * 60


class ExecutionEnvironment:
    """A started process. `invoke` blocks; `kill` may come from any thread at any time."""

    def __init__(self, emulator: Emulator, function: FunctionVersion, *, hold: Hold | None = None) -> None:
        """`hold` holds the process to the part of a processor that its memory buys; raises what that raises."""
        self.function = function
        self.started = time.monotonic()
        self.last_used = self.started
        self._killed = False
        self._emulator = emulator
        self._api = RuntimeApi()
        seconds = emulator.strictness.session_seconds(Rule.FUNCTION_SESSION_EXPIRY, SESSION_SECONDS, str(uuid.uuid4()))
        self._credentials = callers.create_role_session(emulator, function.role, function.name[:64], seconds)
        self._log = FunctionLog(emulator.directory / "logs" / f"function-{function.short_name}.log", function.version)
        self.process = self._spawn()
        self._meter = UsageMeter(self.process.pid)
        self._release = hold(self.process.pid, function.memory_mb) if hold else None
        emulator.process_killers[self._credentials.access_key_id] = self.kill
        emulator.function_names[self._credentials.access_key_id] = function.short_name
        emulator.component(FunctionNetworks).subnets[self._credentials.access_key_id] = function.subnets
        self._log.follow(self.process)
        threading.Thread(target=self._watch, name=f"watch-{function.short_name}", daemon=True).start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        folder = self._emulator.directory / "functions"
        function = self.function
        task = packages.unpack(folder / "code", {function.code_digest: function.code})
        layers = dict(zip(function.layer_digests, function.layers, strict=True))
        opt = packages.unpack(folder / "layers", layers)
        runtime = packages.runtime_folder(folder)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(BOOTSTRAP), task, opt, runtime, self.function.handler],
            env=self._variables(task, Path(opt), runtime),
            cwd=task,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _variables(self, task: Path, opt: Path, runtime: Path) -> dict[str, str]:
        """As Lambda sets them; what the runtime reserves wins over the function's own."""
        function, credentials = self.function, self._credentials
        own = dict(function.environment)
        calls = self._emulator.component(Tls).environment(trusted_by(opt, own))
        return (
            own
            | calls
            | {
                "_HANDLER": function.handler,
                "AWS_ACCESS_KEY_ID": credentials.access_key_id,
                "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
                "AWS_SESSION_TOKEN": credentials.session_token,
                "AWS_REGION": self._emulator.region,
                "AWS_DEFAULT_REGION": self._emulator.region,
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
                "AWS_LAMBDA_FUNCTION_NAME": function.name,
                "AWS_LAMBDA_FUNCTION_VERSION": function.version,
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
                "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
                "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
                "AWS_LAMBDA_LOG_STREAM_NAME": self._log.stream,
                "AWS_LAMBDA_RUNTIME_API": self._api.address,
                "LAMBDA_TASK_ROOT": str(task),
                "LAMBDA_RUNTIME_DIR": str(runtime),
                "LANG": "en_US.UTF-8",
                "PATH": "/usr/local/bin:/usr/bin/:/bin",
                "TZ": ":UTC",
            }
        )

    @property
    def is_usable(self) -> bool:
        fresh = time.monotonic() - self.started < LONGEST_LIFE_SECONDS
        return fresh and not self._killed and self.process.poll() is None

    def invoke(self, payload: bytes, trace: str, client_context: str = "") -> Invocation:
        """Run one event to its end: an answer, an error, a timeout or a crash; never raises."""
        request_id = str(uuid.uuid4())
        invocation = Invocation(request_id, self.function.arn, payload, trace, client_context)
        self._log.begin(request_id)
        if self._initialized(invocation):
            self._meter.begin()
            seconds = self.function.timeout_seconds
            invocation.deadline_ms = int((time.time() + seconds) * 1000)
            self._api.submit(invocation)
            if self.process.poll() is not None:
                self._exited(invocation)
            if not invocation.finished.wait(seconds):
                self._time_out(invocation)
        self.last_used = time.monotonic()
        self._log.end(request_id, invocation.error, self._report(request_id))
        return invocation

    def _report(self, request_id: str) -> str:
        """The REPORT line; empty when the process has ended, since nobody knows then what it used."""
        try:
            return self._meter.end().report(request_id, self.function.memory_mb)
        except OSError:
            return ""

    def _initialized(self, invocation: Invocation) -> bool:
        """Wait for the runtime's first `next`; failures before it become the invocation's outcome."""
        limit = INIT_SECONDS if self._emulator.strictness.holds(Rule.INIT_DURATION) else RELAXED_INIT_SECONDS
        if not self._api.ready.wait(limit):
            invocation.finish(_document("Sandbox.Timedout", f"init took over {limit} s"), "Sandbox.Timedout")
            self.kill()
        elif self._api.init_error is not None:
            error_type, document = self._api.init_error
            invocation.finish(document, error_type)
            self.kill()
        elif self.process.poll() is not None:
            self._exited(invocation)
        return not invocation.finished.is_set()

    def _time_out(self, invocation: Invocation) -> None:
        message = (
            f"RequestId: {invocation.request_id} Error: "
            f"Task timed out after {self.function.timeout_seconds:.2f} seconds"
        )
        invocation.finish(_document("Sandbox.Timedout", message), "Sandbox.Timedout")
        self.kill()

    def _exited(self, invocation: Invocation) -> None:
        code = self.process.returncode
        how = f"signal: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        message = f"RequestId: {invocation.request_id} Error: Runtime exited with error: {how}"
        invocation.finish(_document("Runtime.ExitError", message), "Runtime.ExitError")

    def _watch(self) -> None:
        """When the process ends, whatever it was doing has failed; its credentials are forgotten."""
        self.process.wait()
        if self._api.current_invocation is not None:
            self._exited(self._api.current_invocation)
        self._api.ready.set()
        self._emulator.process_killers.pop(self._credentials.access_key_id, None)
        self._api.close()
        if self._release is not None:
            self._release()

    def tail(self) -> bytes:
        """The last 4 KB that the latest invocation logged."""
        return self._log.tail()

    def kill(self) -> None:
        """End the process and its children at once; the environment cannot be used afterwards."""
        self._killed = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _document(error_type: str, message: str) -> bytes:
    return json.dumps({"errorType": error_type, "errorMessage": message}).encode()
