"""What is deployed under a function name: read from moto's Lambda and IAM state, frozen for one process."""

from dataclasses import dataclass, field
from typing import Any

from moto.awslambda.models import LambdaBackend, LambdaFunction, lambda_backends

from local.aws.emulator import Emulator

PYTHON_RUNTIMES = ("python3.12", "python3.13", "python3.14")


@dataclass(frozen=True)
class FunctionVersion:
    """One version of a function. Two equal values may share processes.

    `short_name` is POWERTOOLS_SERVICE_NAME if set, else the name; `code` and `layers` are zip contents.
    """

    name: str
    arn: str
    version: str
    short_name: str
    handler: str
    runtime: str
    role: str
    memory_mb: int
    timeout_seconds: int
    environment: tuple[tuple[str, str], ...]
    code_digest: str
    layer_digests: tuple[str, ...]
    subnets: tuple[str, ...]
    code: bytes = field(compare=False, repr=False)
    layers: tuple[bytes, ...] = field(compare=False, repr=False)


def lambda_backend(emulator: Emulator) -> LambdaBackend:
    return lambda_backends[emulator.account][emulator.region]


def find_function(emulator: Emulator, name_or_arn: str, qualifier: str | None = None) -> LambdaFunction:
    """moto's function; raises its UnknownFunctionException (an AWS error answer)."""
    return lambda_backend(emulator).get_function(name_or_arn, qualifier or None)


def function_version(emulator: Emulator, function: LambdaFunction) -> FunctionVersion:
    environment = {key: str(value) for key, value in function.environment_vars.items()}
    layers = [_layer(emulator, layer["Arn"]) for layer in function.layers]
    return FunctionVersion(
        name=function.function_name,
        arn=function.function_arn,
        version=str(function.version),
        short_name=short_name(function),
        handler=str(function.handler),
        runtime=str(function.run_time),
        role=function.role,
        memory_mb=int(function.memory_size),
        timeout_seconds=int(function.timeout),
        environment=tuple(sorted(environment.items())),
        code_digest=function.code_digest,
        layer_digests=tuple(layer.code_digest for layer in layers),
        subnets=tuple((function.vpc_config or {}).get("SubnetIds") or ()),
        code=function.code_bytes,
        layers=tuple(layer.code_bytes for layer in layers),
    )


def short_name(function: LambdaFunction) -> str:
    """The short name that people and logs use: the Powertools service name, else the function's name."""
    return str(function.environment_vars.get("POWERTOOLS_SERVICE_NAME") or function.function_name)


def _layer(emulator: Emulator, arn: str) -> Any:
    layer = lambda_backend(emulator).layers_versions_by_arn(arn)
    if layer is None:
        raise LookupError(f"layer {arn} does not exist any more")
    return layer
