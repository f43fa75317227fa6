"""Launch templates as launches see them, and the three calls where moto's answers fall short.

moto stores templates and versions; its Describe calls do not page and keep the tags of creation time.
"""

import re
from collections.abc import Mapping
from typing import Any

from moto.ec2.models import ec2_backends

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

_NAME = re.compile(r"[a-zA-Z0-9()./_-]{3,128}")


def resolve_template(emulator: Emulator, specification: Mapping[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """(template id, version number, template data); raises AwsError as EC2 does for what it cannot find."""
    template = find_template(emulator, specification.get("LaunchTemplateId"), specification.get("LaunchTemplateName"))
    wanted = specification.get("Version") or "$Default"
    for version in template.versions:
        number = {"$Latest": template.latest_version_number, "$Default": template.default_version_number}
        if str(version.number) == str(number.get(wanted, wanted)):
            return template.id, version.number, version.data
    raise AwsError(
        "InvalidLaunchTemplateId.VersionNotFound",
        f"Could not find launch template version {wanted} for launch template {template.id}.",
    )


def find_template(emulator: Emulator, template_id: str | None, name: str | None) -> Any:
    """moto's template by id or by name (exactly one of the two), if EC2 knows it everywhere by now."""
    template = stored_template(emulator, template_id, name)
    if not _is_seen(emulator, template):
        raise _not_found(template_id, name)
    return template


def stored_template(emulator: Emulator, template_id: str | None, name: str | None) -> Any:
    """The same, as soon as it was made: IAM's decisions do not wait."""
    backend = ec2_backends[emulator.account][emulator.region]
    if bool(template_id) == bool(name):
        raise AwsError("InvalidRequest", "Specify either a launch template ID or a launch template name, not both.")
    found = template_id or backend.launch_template_name_to_ids.get(str(name))
    if found not in backend.launch_templates:
        raise _not_found(template_id, name)
    return backend.launch_templates[found]


def _not_found(template_id: str | None, name: str | None) -> AwsError:
    if template_id:
        return AwsError(
            "InvalidLaunchTemplateId.NotFound",
            f"The specified launch template, with template ID {template_id}, does not exist.",
        )
    return AwsError(
        "InvalidLaunchTemplateName.NotFoundException",
        f"The specified launch template, with template name {name}, does not exist.",
    )


def _is_seen(emulator: Emulator, template: Any) -> bool:
    return emulator.strictness.is_seen(Rule.LAUNCH_TEMPLATE_PROPAGATION, template.name)


def add(emulator: Emulator) -> None:
    emulator.handle("ec2", "CreateLaunchTemplate", _check_name)
    emulator.handle("ec2", "DescribeLaunchTemplates", lambda request: _describe(emulator, request))
    emulator.handle("ec2", "DescribeLaunchTemplateVersions", lambda request: _describe_versions(emulator, request))


def _check_name(request: AwsRequest) -> None:
    name = request.params.get("LaunchTemplateName", "")
    if not _NAME.fullmatch(name):
        raise AwsError(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers,"
            " and the following characters: - ( ) . / _.",
        )


def _describe(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params = request.params
    backend = ec2_backends[emulator.account][emulator.region]
    templates = [find_template(emulator, None, name) for name in params.get("LaunchTemplateNames", [])]
    templates += [find_template(emulator, template_id, None) for template_id in params.get("LaunchTemplateIds", [])]
    templates = templates or [item for item in backend.launch_templates.values() if _is_seen(emulator, item)]
    for wanted in params.get("Filters", []):
        templates = [template for template in templates if _matches(backend, template, wanted)]
    shown, token = page(templates, params, default=200)
    return request.reply(
        {
            "LaunchTemplates": [
                {
                    "LaunchTemplateId": template.id,
                    "LaunchTemplateName": template.name,
                    "CreateTime": template.create_time,
                    "CreatedBy": f"arn:aws:iam::{emulator.account}:root",
                    "DefaultVersionNumber": template.default_version_number,
                    "LatestVersionNumber": template.latest_version_number,
                    "Tags": [{"Key": key, "Value": value} for key, value in _tags(backend, template)],
                }
                for template in shown
            ]
        }
        | token
    )


def _describe_versions(emulator: Emulator, request: AwsRequest) -> AwsResponse | None:
    params = request.params
    if not params.get("LaunchTemplateId") and not params.get("LaunchTemplateName"):
        return None
    template = find_template(emulator, params.get("LaunchTemplateId"), params.get("LaunchTemplateName"))
    wanted = params.get("Versions") or [version.number for version in template.versions]
    specification = {"LaunchTemplateId": template.id}
    numbers = {resolve_template(emulator, specification | {"Version": str(number)})[1] for number in wanted}
    versions = [version for version in template.versions if version.number in numbers]
    shown, token = page(versions, params, default=200)
    return request.reply({"LaunchTemplateVersions": [_version(emulator, item) for item in shown]} | token)


def _version(emulator: Emulator, version: Any) -> dict[str, Any]:
    return {
        "LaunchTemplateId": version.template.id,
        "LaunchTemplateName": version.template.name,
        "VersionNumber": version.number,
        "VersionDescription": version.description,
        "CreateTime": version.create_time,
        "CreatedBy": f"arn:aws:iam::{emulator.account}:root",
        "DefaultVersion": version.template.is_default(version),
        "LaunchTemplateData": version.data,
    }


def _tags(backend: Any, template: Any) -> list[tuple[str, str]]:
    return list(backend.tags.get(template.id, {}).items())


def _matches(backend: Any, template: Any, wanted: Mapping[str, Any]) -> bool:
    name, values = wanted["Name"], wanted["Values"]
    tags = dict(_tags(backend, template))
    if name == "launch-template-name":
        return template.name in values
    if name == "tag-key":
        return any(value in tags for value in values)
    if name.startswith("tag:"):
        return tags.get(name.removeprefix("tag:")) in values
    raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
