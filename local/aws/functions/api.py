"""The calls of the Lambda API that moto cannot answer, or answers too kindly."""

import base64
import io
import zipfile
from dataclasses import replace

from moto.awslambda.models import LambdaFunction
from moto.core.exceptions import JsonRESTError

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.emulator import Emulator
from local.aws.functions import asynchronous
from local.aws.functions.environment_pool import Throttled
from local.aws.functions.invocations import ACCOUNT_CONCURRENCY, Disabled, Functions
from local.aws.functions.versions import PYTHON_RUNTIMES, find_function
from local.aws.iam.trust_policies import trusts
from local.aws.strictness import Rule
from local.aws.sts import callers

# What accounts have that are not new.
USUAL_CONCURRENCY = 1000
# Synchronous answers may have 6 MB.
LARGEST_ANSWER_BYTES = 6 * 1024 * 1024


def add(emulator: Emulator) -> None:
    functions = emulator.component(Functions)
    emulator.handle("lambda", "Invoke", lambda request: _invoke(emulator, functions, request))
    emulator.handle("lambda", "CreateFunction", lambda request: _check_create(emulator, request))
    emulator.handle("lambda", "GetAccountSettings", lambda request: _account_settings(emulator, request))
    emulator.handle(
        "lambda", "PutFunctionRecursionConfig", lambda request: _put_recursion(emulator, functions, request)
    )
    emulator.handle(
        "lambda", "GetFunctionRecursionConfig", lambda request: _get_recursion(emulator, functions, request)
    )


def _account_settings(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    """What the account may run at once; nothing here reserves a part of it."""
    is_new = emulator.strictness.holds(Rule.ACCOUNT_CONCURRENCY)
    limit = ACCOUNT_CONCURRENCY if is_new else USUAL_CONCURRENCY
    return request.reply(
        {"AccountLimit": {"ConcurrentExecutions": limit, "UnreservedConcurrentExecutions": limit}, "AccountUsage": {}}
    )


def require_function(emulator: Emulator, name_or_arn: str, qualifier: str | None = None) -> LambdaFunction:
    """moto's function, or the AWS error that says it is not there."""
    try:
        return find_function(emulator, name_or_arn, qualifier)
    except JsonRESTError as error:
        raise AwsError(str(error.error_type), str(error.message), int(error.code or 400)) from None


def _invoke(emulator: Emulator, functions: Functions, request: AwsRequest) -> AwsResponse:
    params = request.params
    function = require_function(emulator, params["FunctionName"], params.get("Qualifier"))
    payload = _bytes(params.get("Payload")) or b"{}"
    trace = request.headers.get("x-amzn-trace-id", "")
    match params.get("InvocationType", "RequestResponse"):
        case "DryRun":
            return replace(request.reply({}), status=204, body=b"")
        case "Event":
            asynchronous.invoke_async(functions, function, payload, trace)
            return replace(request.reply({}), status=202, body=b"")
        case _:
            return _run(functions, function, payload, trace, request)


def _run(
    functions: Functions, function: LambdaFunction, payload: bytes, trace: str, request: AwsRequest
) -> AwsResponse:
    if functions.stops_recursion(function, trace):
        raise AwsError("RecursiveInvocationException", "Lambda has detected a recursive loop.", 400)
    context = request.params.get("ClientContext", "")
    try:
        invocation, environment = functions.invoke(function, payload, traces=(trace,), client_context=context)
    except Throttled:
        raise AwsError("TooManyRequestsException", "Rate Exceeded.", 429) from None
    except Disabled:
        raise AwsError("ServiceException", f"{function.function_name} is switched off", 503) from None
    answer, error = invocation.answer, invocation.error
    if len(answer) > LARGEST_ANSWER_BYTES:
        answer, error = b'{"errorType":"Function.ResponseSizeTooLarge"}', "Function.ResponseSizeTooLarge"
    reply: dict[str, object] = {"Payload": answer, "ExecutedVersion": str(function.version)}
    if error:
        reply["FunctionError"] = "Unhandled"
    if request.params.get("LogType") == "Tail":
        reply["LogResult"] = base64.b64encode(environment.tail()).decode()
    return request.reply(reply)


def _bytes(payload: object) -> bytes:
    match payload:
        case bytes():
            return payload
        case str():
            return payload.encode()
        case None:
            return b""
        case _:
            return bytes(payload.read())  # type: ignore[attr-defined]


def _check_create(emulator: Emulator, request: AwsRequest) -> None:
    """Refuse what this runtime could not run, before moto accepts it."""
    params = request.params
    runtime = params.get("Runtime", "")
    if params.get("PackageType", "Zip") != "Zip" or runtime not in PYTHON_RUNTIMES:
        raise AwsError("InvalidParameterValueException", f"the local Lambda runs Python zips, not {runtime!r}")
    if not _lambda_may_assume(emulator, params["Role"]):
        raise AwsError(
            "InvalidParameterValueException", "The role defined for the function cannot be assumed by Lambda."
        )
    content = params["Code"].get("ZipFile")
    if content is not None and not zipfile.is_zipfile(io.BytesIO(_bytes(content))):
        raise AwsError("InvalidParameterValueException", "Could not unzip uploaded file.")


def _lambda_may_assume(emulator: Emulator, role_arn: str) -> bool:
    role, context = callers.find_role(emulator, role_arn), {"aws:sourceaccount": (emulator.account,)}
    return role is not None and trusts(role, {"lambda.amazonaws.com"}, "sts:AssumeRole", context)


def _put_recursion(emulator: Emulator, functions: Functions, request: AwsRequest) -> AwsResponse:
    function = require_function(emulator, request.params["FunctionName"])
    if request.params["RecursiveLoop"] == "Allow":
        functions.recursive_names.add(function.function_name)
    else:
        functions.recursive_names.discard(function.function_name)
    return _get_recursion(emulator, functions, request)


def _get_recursion(emulator: Emulator, functions: Functions, request: AwsRequest) -> AwsResponse:
    function = require_function(emulator, request.params["FunctionName"])
    allowed = function.function_name in functions.recursive_names
    return request.reply({"RecursiveLoop": "Allow" if allowed else "Terminate"})
