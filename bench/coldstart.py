"""How long a function's process takes from its start to its first response, under Lambda's own runtime client.

The layer and the function's folder are what is deployed; the event is an empty batch, so that nothing but starting is
measured. `python -m bench.coldstart` prints one line per function; ROUNDS processes each, the median and the best.
"""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from layers.core.build import ROOT, build_layer

ROUNDS = 7
_TIMEOUT_SECONDS = 60
_ARN = "arn:aws:lambda:eu-central-1:123456789012:function:bench"
#: Lambda's image brings its runtime client; here it comes from the environment this runs in.
_RUNTIME = ("awslambdaric", "snapshot_restore_py", "simplejson")
_ROLE = "arn:aws:iam::123456789012:role/bench"


def report() -> Iterator[str]:
    machine = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
    with tempfile.TemporaryDirectory() as folder, RuntimeApi() as api:
        opt = Path(folder)
        with zipfile.ZipFile(build_layer(machine)) as zipped:
            zipped.extractall(opt)
        _add_runtime_client(opt / "runtime")
        for handler in sorted(ROOT.glob("functions/*/handler.py")):
            if handler.parent.name != "install":
                yield _line(api, opt, handler.parent)


class RuntimeApi:
    """Lambda's side of the conversation: one empty batch, then silence.

    https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
    """

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.failure = ""
        api = self

        class Conversation(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if api.answered.is_set():
                    time.sleep(_TIMEOUT_SECONDS)
                deadline = str(int((time.time() + _TIMEOUT_SECONDS) * 1000))
                names = {"Lambda-Runtime-Aws-Request-Id": "1", "Lambda-Runtime-Invoked-Function-Arn": _ARN}
                self._send(200, json.dumps({"Records": []}), {**names, "Lambda-Runtime-Deadline-Ms": deadline})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                api.failure = "" if self.path.endswith("/response") else body
                api.answered.set()
                self._send(202, "{}", {})

            def _send(self, status: int, body: str, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Conversation)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "RuntimeApi":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()


def _line(api: RuntimeApi, opt: Path, folder: Path) -> str:
    rounds = [_milliseconds(api, opt, folder) for _ in range(ROUNDS)]
    return f"cold start {folder.name}: {statistics.median(rounds):.0f} ms (best {min(rounds):.0f} ms)"


def _milliseconds(api: RuntimeApi, opt: Path, folder: Path) -> float:
    api.answered.clear()
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "awslambdaric", "handler.handler"],
        cwd=folder,
        env=_environment(api, opt, folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if not api.answered.wait(_TIMEOUT_SECONDS) or api.failure:
            raise RuntimeError(f"{folder.name} did not start: {api.failure or 'no answer'}")
        return (time.perf_counter() - start) * 1000
    finally:
        process.kill()
        process.wait()


def _environment(api: RuntimeApi, opt: Path, folder: Path) -> dict[str, str]:
    cluster = {"readRoleArn": _ROLE, "actRoleArn": _ROLE, "nodeRoles": []}
    return {
        "AWS_LAMBDA_RUNTIME_API": api.address,
        "AWS_LAMBDA_FUNCTION_NAME": folder.name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_EC2_METADATA_DISABLED": "true",
        "LAMBDA_TASK_ROOT": str(folder),
        "POWERTOOLS_SERVICE_NAME": folder.name,
        "POWERTOOLS_METRICS_NAMESPACE": "Spotwright",
        "SPOTWRIGHT_CELL": "bench",
        "SPOTWRIGHT_TABLE": "bench",
        "SPOTWRIGHT_BUCKET": "bench",
        "SPOTWRIGHT_CLUSTERS": json.dumps({"bench": cluster}),
        "PYTHONPATH": os.pathsep.join(map(str, (folder, opt / "python", opt / "runtime"))),
        # The environment's packages must not help: what is not in the layer is not there.
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _add_runtime_client(target: Path) -> None:
    target.mkdir()
    for name in _RUNTIME:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        (target / name).symlink_to(spec.submodule_search_locations[0])


if __name__ == "__main__":
    for line in report():
        print(line, flush=True)
