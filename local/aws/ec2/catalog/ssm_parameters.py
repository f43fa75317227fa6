"""Public SSM parameters that name EKS, Bottlerocket and Windows images; every other parameter is moto's business."""

from datetime import datetime
from typing import Any

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.catalog.images import PublicParameters
from local.aws.emulator import Emulator

PREFIXES = ("/aws/service/eks/", "/aws/service/bottlerocket/", "/aws/service/ami-windows-latest/")


def add(emulator: Emulator) -> None:
    parameters = emulator.component(PublicParameters).parameters
    emulator.handle("ssm", "GetParameter", lambda request: _get(emulator, parameters, request))
    emulator.handle("ssm", "GetParameters", lambda request: _get_some(emulator, parameters, request))
    emulator.handle("ssm", "GetParametersByPath", lambda request: _get_by_path(emulator, parameters, request))


def _get(emulator: Emulator, parameters: dict[str, tuple[str, datetime]], request: AwsRequest) -> AwsResponse | None:
    name = request.params["Name"]
    if not name.startswith(PREFIXES):
        return None
    if name not in parameters:
        raise AwsError("ParameterNotFound", "")
    return request.reply({"Parameter": _shape(emulator, parameters, name)})


def _get_some(
    emulator: Emulator, parameters: dict[str, tuple[str, datetime]], request: AwsRequest
) -> AwsResponse | None:
    names = request.params["Names"]
    if not any(name.startswith(PREFIXES) for name in names):
        return None
    found = [_shape(emulator, parameters, name) for name in names if name in parameters]
    return request.reply({"Parameters": found, "InvalidParameters": [name for name in names if name not in parameters]})


def _get_by_path(
    emulator: Emulator, parameters: dict[str, tuple[str, datetime]], request: AwsRequest
) -> AwsResponse | None:
    folder = request.params["Path"].rstrip("/") + "/"
    if not folder.startswith(PREFIXES):
        return None
    deep = bool(request.params.get("Recursive"))
    names = [
        name
        for name in sorted(parameters)
        if name.startswith(folder) and (deep or "/" not in name.removeprefix(folder))
    ]
    some, token = page(names, request.params, default=10)
    return request.reply({"Parameters": [_shape(emulator, parameters, name) for name in some]} | token)


def _shape(emulator: Emulator, parameters: dict[str, tuple[str, datetime]], name: str) -> dict[str, Any]:
    value, changed = parameters[name]
    return {
        "Name": name,
        "Type": "String",
        "Value": value,
        "Version": 1,
        "LastModifiedDate": changed,
        "ARN": f"arn:aws:ssm:{emulator.region}::parameter{name}",
        "DataType": "aws:ec2:image" if name.endswith("/image_id") else "text",
    }
