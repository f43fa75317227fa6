"""The Lambda service: deployed functions run as real processes behind the Invoke API.

moto keeps what is deployed; here it runs. Control API: `GET /_local/functions`, `POST /_local/functions
{"shares": bool}` for processes that start from now on, and `POST /_local/functions/<name> {"enabled": bool}`.
"""

from collections.abc import Mapping
from typing import Any

from moto.awslambda.models import LambdaFunction

from local.aws.emulator import Emulator
from local.aws.functions import api
from local.aws.functions.invocations import Functions
from local.aws.functions.networks import FunctionNetworks
from local.aws.functions.versions import lambda_backend, short_name


def add(emulator: Emulator) -> None:
    functions = emulator.component(Functions)
    api.add(emulator)
    emulator.check_before(emulator.component(FunctionNetworks).check)
    emulator.route("GET", "/_local/functions", lambda _body, _parameters: _functions(functions))
    emulator.route("POST", "/_local/functions", lambda body, _parameters: _share(functions, body))
    emulator.route("POST", "/_local/functions/<name>", lambda body, parameters: _switch(functions, body, parameters))
    emulator.run_in_background("functions", functions.run)


def _functions(functions: Functions) -> dict[str, Any]:
    """Control API: every function with its processes, invocations and last error."""
    return {
        "functions": [
            _describe(functions, function) for function in lambda_backend(functions.emulator).list_functions()
        ]
    }


def _describe(functions: Functions, function: LambdaFunction) -> dict[str, Any]:
    pools = [pool for (name, _), pool in list(functions.pools.items()) if name == function.function_name]
    return {
        "name": short_name(function),
        "functionName": function.function_name,
        "enabled": not functions.is_disabled(function),
        "processes": sum(pool.processes for pool in pools),
        "invocations": sum(pool.invocations for pool in pools),
        "lastError": next((pool.last_error for pool in pools if pool.last_error), ""),
    }


def _share(functions: Functions, body: Mapping[str, Any]) -> dict[str, Any]:
    """Control API: whether a process gets a whole processor or the part that its function's memory buys."""
    functions.shares = bool(body["shares"])
    return {"shares": functions.shares}


def _switch(functions: Functions, body: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Control API: `{"enabled": bool}` for one function, by short or full name."""
    name = parameters["name"]
    known = {name for function in lambda_backend(functions.emulator).list_functions() for name in _names(function)}
    if name not in known:
        raise KeyError(f"no function {name}")
    if body["enabled"]:
        functions.disabled_names.discard(name)
    else:
        functions.disabled_names.add(name)
    return {"name": name, "enabled": bool(body["enabled"])}


def _names(function: LambdaFunction) -> tuple[str, str]:
    return function.function_name, short_name(function)
