"""A synthesised template as tests ask about it: resources by type, references as text."""

from dataclasses import dataclass
from typing import Any

type Resource = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a policy, its references as text."""

    sid: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: dict[str, dict[str, Any]]


class Template:
    """A stack's template, with what the assembly says around it."""

    def __init__(self, body: dict[str, Any], missing: list[Any]) -> None:
        self.body = body
        self.missing = missing
        self.resources: dict[str, Resource] = body["Resources"]

    def of(self, kind: str) -> dict[str, Resource]:
        """Properties by logical id."""
        return {
            id: text_in(resource.get("Properties", {}))
            for id, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def function(self, name: str) -> Resource:
        """The properties of a function by its word."""
        functions = self.of("AWS::Lambda::Function").values()
        return next(resource for resource in functions if resource["FunctionName"].endswith(f"-{name}"))

    def role_id(self, name: str) -> str:
        """The logical id of a function's role."""
        return str(self.function(name)["Role"]).removeprefix("<").removesuffix(".Arn>")

    def statements(self, role_id: str) -> list[Statement]:
        """What a role's policies say."""
        policies = [*self.of("AWS::IAM::Policy").values(), *self.of("AWS::IAM::ManagedPolicy").values()]
        documents = [resource["PolicyDocument"] for resource in policies if f"<{role_id}>" in resource["Roles"]]
        return [statement for document in documents for statement in statements(document)]

    def cluster_role(self, cluster: str, name: str) -> str:
        """The logical id of a cluster's role `Read`, `Act` or `Forwarder`."""
        prefix = f"Cluster{cluster.replace('-', '')}{name}"
        (id,) = (id for id in self.of("AWS::IAM::Role") if id.startswith(prefix))
        return id


def statements(document: dict[str, Any]) -> list[Statement]:
    return [
        Statement(
            each.get("Sid", ""),
            each["Effect"],
            _tuple(each["Action"]),
            _tuple(each.get("Resource", [])),
            each.get("Condition", {}),
        )
        for each in document["Statement"]
    ]


def text_in(value: Any) -> Any:
    """The same value with `{"Ref": X}` as `<X>` and joins put together."""
    match value:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{resource}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(str(text_in(part)) for part in parts)
        case dict():
            return {key: text_in(each) for key, each in value.items()}
        case list():
            return [text_in(each) for each in value]
        case _:
            return value


def _tuple(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
