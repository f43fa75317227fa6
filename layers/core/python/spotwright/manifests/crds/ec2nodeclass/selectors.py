"""How an EC2NodeClass selects AMIs, subnets, security groups, capacity reservations and a placement group.

Terms of a list are ORed, fields of a term ANDed; a tag value ``*`` requires only that the key exists.
"""

from collections.abc import Mapping, Sequence

from spotwright.manifests.crds.openapi import Rule, Schema, array, enum, map_of, object_with, rule, string

ALIAS_FAMILIES = ("al2", "al2023", "bottlerocket", "windows2019", "windows2022", "windows2025")


def subnet_terms() -> Schema:
    return _terms(
        "Subnets of the nodes.",
        {"tags": _tags(), "id": string("The subnet's id.", pattern="^subnet-[0-9a-z]+$")},
        rules=[_excludes("id", ["tags"])],
    )


def security_group_terms() -> Schema:
    return _terms(
        "Security groups of the nodes; all that match are attached.",
        {
            "tags": _tags(),
            "id": string("The group's id.", pattern="^sg-[0-9a-z]+$"),
            "name": string("The group's name (not its Name tag).", minLength=1),
        },
        rules=[_excludes("id", ["tags", "name"]), _excludes("name", ["tags"])],
    )


def ami_terms() -> Schema:
    return _terms(
        "Images of the nodes; the newest image for an architecture is used.",
        {
            "alias": _alias(),
            "tags": _tags(),
            "id": string("The image's id.", pattern="^ami-[0-9a-z]+$"),
            "name": string("The image's name; * and ? are wildcards.", minLength=1),
            "owner": string(
                "The image's owner: an account id, self, amazon or aws-marketplace; unset = self and amazon.",
                minLength=1,
            ),
            "ssmParameter": string("Name or ARN of an SSM parameter that holds the image's id.", minLength=1),
        },
        rules=[
            _excludes("alias", ["tags", "id", "name", "owner", "ssmParameter"]),
            _excludes("id", ["tags", "name", "owner"]),
            rule(
                "!has(self.owner) || has(self.tags) || has(self.id) || has(self.name) || has(self.ssmParameter)",
                "owner alone selects too much: add tags or name",
            ),
        ],
        whole_list=[
            rule(
                "self.size() == 1 || !self.exists(term, has(term.alias))",
                "a term with an alias must be the only amiSelectorTerm",
            )
        ],
    )  # fmt: skip


def _alias() -> Schema:
    listed = ", ".join(f"'{family}'" for family in ALIAS_FAMILIES)
    return string(
        "AMI family and version, for example al2023@latest or al2023@v20250821.",
        maxLength=30,
        rules=[
            rule(
                "self.matches('^[a-zA-Z0-9]+@.+$')",
                "alias must have the form family@version, for example al2023@latest",
            ),
            rule(
                f"!self.contains('@') || self.split('@')[0] in [{listed}]",
                "alias family must be one of " + ", ".join(ALIAS_FAMILIES),
            ),
            rule(
                "!self.startsWith('windows') || self.endsWith('@latest')",
                "a Windows alias must have the version latest",
            ),
        ],
    )


def capacity_reservation_terms() -> Schema:
    return _terms(
        "Capacity reservations that nodes may use.",
        {
            "tags": _tags(),
            "id": string("The reservation's id.", pattern="^cr-[0-9a-z]+$"),
            "ownerID": string("The account that owns the reservation.", pattern="^[0-9]{12}$"),
            "instanceMatchCriteria": enum(
                "Whether any matching instance uses the reservation (open), or only instances that name it (targeted).",
                "open",
                "targeted",
            ),
        },
        least=0,
        rules=[
            _excludes("id", ["tags", "ownerID", "instanceMatchCriteria"]),
            rule(
                "!has(self.ownerID) || has(self.tags) || has(self.id) || has(self.instanceMatchCriteria)",
                "ownerID alone selects too much: add tags or instanceMatchCriteria",
            ),
        ],
    )


def placement_group() -> Schema:
    return object_with(
        "The placement group of the nodes.",
        {
            "name": string("The group's name.", minLength=1),
            "id": string("The group's id.", pattern="^pg-[0-9a-z]+$"),
        },
        rules=[rule("has(self.name) != has(self.id)", "set exactly one of name and id")],
    )


def _tags() -> Schema:
    return map_of(
        "Tags of the resource; the value * matches every value.",
        string("", minLength=1),
        maxProperties=20,
        rules=[rule("self.all(key, key != '')", "a tag key cannot be empty")],
    )


def _excludes(field: str, excluded: Sequence[str]) -> Rule:
    free = " && ".join(f"!has(self.{name})" for name in excluded)
    return rule(f"!has(self.{field}) || ({free})", f"{field} cannot be combined with {', '.join(excluded)}")


def _terms(
    description: str,
    properties: Mapping[str, Schema],
    *,
    rules: Sequence[Rule],
    whole_list: Sequence[Rule] = (),
    least: int = 1,
) -> Schema:
    """A list of at most 30 terms, none of which is empty."""
    any_field = " || ".join(f"has(self.{name})" for name in properties)
    not_empty = rule(any_field, "a selector term needs at least one of " + ", ".join(properties))
    term = object_with("", properties, rules=[not_empty, *rules])
    return array(description, term, rules=whole_list, minItems=least, maxItems=30)
