"""Aliases, what they ask SSM for, and which image is taken."""

from datetime import UTC, datetime

import pytest

from spotwright.aws.images import aliases, amis
from spotwright.aws.images.amis import Image
from spotwright.aws.refusal import Refusal
from spotwright.model.karpenter.nodeclass import AMI, SelectorTerm
from tests.unit.aws.samples import NOW, nodeclass, types

OLD, NEW = "2025-01-01T00:00:00.000Z", "2025-06-01T00:00:00.000Z"
STANDARD = aliases.variant_requirements("x86_64", "standard")


def paths(alias: str, version: str = "1.35") -> list[str]:
    parameters = aliases.alias_parameters(alias, version)
    assert not isinstance(parameters, Refusal), parameters
    return [image_parameter.path for image_parameter in parameters]


def test_the_latest_al2023_has_five_images() -> None:
    root = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023"
    assert paths("al2023@latest") == [
        f"{root}/{kind}/recommended/image_id"
        for kind in ("x86_64/standard", "x86_64/nvidia", "x86_64/neuron", "arm64/standard", "arm64/nvidia")
    ]


def test_a_pinned_al2023_is_named_in_full() -> None:
    name = "amazon-eks-node-al2023-x86_64-standard-1.35-v20250821"
    root = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard"
    assert paths("al2023@v20250821")[0] == f"{root}/{name}/image_id"


def test_bottlerocket_versions_stand_without_their_letter() -> None:
    assert paths("bottlerocket@v1.45.0")[0] == "/aws/service/bottlerocket/aws-k8s-1.35/x86_64/1.45.0/image_id"
    assert paths("bottlerocket@latest")[-1] == "/aws/service/bottlerocket/aws-k8s-1.35-nvidia/arm64/latest/image_id"


def test_al2_has_one_gpu_image_for_nvidia_and_neuron() -> None:
    root = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2"
    assert paths("al2@latest", "1.32.0") == [
        f"{root}/recommended/image_id",
        f"{root}-arm64/recommended/image_id",
        f"{root}-gpu/recommended/image_id",
        f"{root}-gpu/recommended/image_id",
    ]
    assert paths("al2@v20250821", "1.32")[1] == f"{root}-arm64/amazon-eks-arm64-node-1.32-v20250821/image_id"


def test_an_image_for_two_variants_counts_for_both() -> None:
    query = amis.image_query((SelectorTerm(alias="bottlerocket@latest"),), "1.35")
    assert isinstance(query, amis.ImageQuery)
    values = {
        parameter.path: "ami-" + parameter.path.split("/")[4] + parameter.path.split("/")[5]
        for parameter in query.parameters
    }
    images = [Image(id, id, NEW, "arm64" if id.endswith("arm64") else "x86_64") for id in sorted(set(values.values()))]
    resolved = amis.resolve_amis(query, values, images, now=NOW)
    assert len(images) == 4
    assert len({ami.requirements for ami in resolved}) == len(resolved) == 5


@pytest.mark.parametrize("year", ["2019", "2022", "2025"])
def test_windows_images_are_for_windows_nodes(year: str) -> None:
    (parameter,) = aliases.alias_parameters(f"windows{year}@latest", "1.35")  # type: ignore[misc]
    assert (
        parameter.path
        == f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-1.35/image_id"
    )
    assert {str(wanted.key) for wanted in parameter.requirements} == {
        "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/windows-build",
    }  # fmt: skip
    sold = nodeclass(ami_family=f"Windows{year}", amis=(AMI("ami-w", requirements=parameter.requirements),))
    by_name = {instance_type.name: instance_type for instance_type in types("m5.large", "m6g.large", of=sold)}
    assert any(offering.available for offering in by_name["m5.large"].offerings)
    assert not any(offering.available for offering in by_name["m6g.large"].offerings)


@pytest.mark.parametrize(
    ("alias", "version"),
    [
        ("al2@latest", "1.33"),
        ("windows2022@v1.0.0", "1.35"),
        ("al2@latest", "1.34"),
        ("windows2025@latest", "1.34"),
        ("ubuntu@latest", "1.35"),
        ("al2023", "1.35"),
        ("@latest", "1.35"),
    ],
)
def test_an_alias_that_means_nothing_here_is_refused(alias: str, version: str) -> None:
    refusal = aliases.alias_parameters(alias, version)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "UnsupportedAlias"
    assert repr(alias) in refusal.message


def image(
    id: str, created: str = "2026-01-01T00:00:00.000Z", deprecation: str = "", architecture: str = "x86_64"
) -> Image:
    return Image(id, f"name-{id}", created, architecture, deprecation)


GONE, COMING = "2025-12-31T00:00:00.000Z", "2027-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("images", "taken"),
    [
        ([image("a", OLD), image("b", NEW)], "b"),
        ([image("a", OLD), image("b", NEW, GONE)], "a"),
        ([image("a", OLD, GONE), image("b", NEW, GONE)], "b"),
        ([image("a", OLD), image("b", NEW, COMING)], "b"),
        ([image("b", NEW), image("a", NEW)], "a"),
    ],
)
def test_one_image_of_a_kind_is_taken(images: list[Image], taken: str) -> None:
    (selected,) = amis.select_newest([(candidate, STANDARD) for candidate in images], now=NOW)
    assert selected.id == taken
    assert selected.deprecated == (taken == "b" and images[-1].deprecation_time == GONE)


def test_images_of_different_kinds_stand_newest_first() -> None:
    arm = aliases.variant_requirements("arm64", "standard")
    selected = amis.select_newest([(image("a", OLD), STANDARD), (image("b", NEW, architecture="arm64"), arm)], now=NOW)
    assert [ami.id for ami in selected] == ["b", "a"]


def test_terms_become_questions() -> None:
    terms = (
        SelectorTerm(id="ami-1"),
        SelectorTerm(ssm_parameter="/mine"),
        SelectorTerm(name="golden-*"),
        SelectorTerm(tags={"a": "b"}),
    )
    query = amis.image_query(terms, "1.35")
    assert not isinstance(query, Refusal)
    assert [parameter.path for parameter in query.parameters] == ["/mine"]
    assert query.ids == ("ami-1",)
    assert query.terms == terms[2:]


def test_answers_become_images_with_requirements() -> None:
    query = amis.image_query((SelectorTerm(alias="al2023@latest"),), "1.35")
    assert not isinstance(query, Refusal)
    values = {image_parameter.path: f"ami-{number}" for number, image_parameter in enumerate(query.parameters)}
    values[query.parameters[4].path] = "not an image"
    images = [image(f"ami-{number}") for number in range(4)]
    requirements_by_id = {ami.id: ami.requirements for ami in amis.resolve_amis(query, values, images, now=NOW)}
    assert requirements_by_id == {f"ami-{number}": query.parameters[number].requirements for number in range(4)}


def test_an_image_of_the_user_fits_its_architecture() -> None:
    query = amis.image_query((SelectorTerm(id="ami-1"),), "1.35")
    assert not isinstance(query, Refusal)
    (ami,) = amis.resolve_amis(query, {}, [image("ami-1", architecture="arm64")], now=NOW)
    assert [str(expression.requirement()) for expression in ami.requirements] == ["kubernetes.io/arch In [arm64]"]


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("m5.large", "ami-x86_64-standard"),
        ("t4g.small", "ami-arm64-standard"),
        ("g4dn.xlarge", "ami-x86_64-nvidia"),
        ("g5g.xlarge", "ami-arm64-nvidia"),
        ("inf1.xlarge", "ami-x86_64-neuron"),
    ],
)
def test_a_type_gets_the_image_of_its_kind(name: str, taken: str) -> None:
    (instance_type,) = types(name)
    ami = amis.ami_for_type(amis.amis_with_requirements(nodeclass().amis), instance_type)
    assert ami is not None
    assert ami.id == taken


def test_a_date_without_a_time_zone_is_read_as_ec2_gives_it() -> None:
    assert image("a", deprecation="2026-01-01T12:00:00.000Z").is_deprecated(datetime(2026, 1, 1, 12, tzinfo=UTC))
