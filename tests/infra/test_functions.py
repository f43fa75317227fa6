"""Seven functions, each one folder under one layer, told what it needs by its environment."""

import json

import pytest

from infra.config import MAX_CLUSTERS
from infra.fields import ConfigError
from layers.core import authorities
from spotwright.settings import environment
from tests.infra.conftest import ROOT, cluster, synthesise
from tests.infra.template import Template

TIMEOUTS = {
    **{"provision": 60, "lifecycle": 30, "interrupt": 10, "disrupt": 60},
    **{"catalog": 60, "sweep": 30, "install": 300},
}

#: What one thread of Python can use at most: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
WHOLE_PROCESSOR_MB = 1769
#: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
ENVIRONMENT_BYTES = 4096


def test_there_are_seven_and_each_has_its_folder(plain: Template) -> None:
    functions = plain.of("AWS::Lambda::Function").values()
    assert {resource["FunctionName"] for resource in functions} == {f"Spotwright-main-{name}" for name in TIMEOUTS}
    for name in TIMEOUTS:
        assert (ROOT / "functions" / name / "handler.py").exists()


@pytest.mark.parametrize(("name", "timeout_seconds"), TIMEOUTS.items())
def test_a_function_is_what_its_word_says(plain: Template, name: str, timeout_seconds: int) -> None:
    function = plain.function(name)
    assert function["Timeout"] == timeout_seconds
    assert function["Runtime"] == "python3.13"
    assert function["Handler"] == "handler.handler"
    assert function["Architectures"] == ["arm64"]
    assert function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == name
    assert function["RecursiveLoop"] == (
        "Allow" if name in ("provision", "lifecycle", "disrupt", "sweep") else "Terminate"
    )


@pytest.mark.parametrize("name", ["provision", "lifecycle", "interrupt", "disrupt"])
def test_what_pods_wait_for_and_what_plans_has_a_whole_processor(plain: Template, name: str) -> None:
    assert plain.function(name)["MemorySize"] == WHOLE_PROCESSOR_MB


@pytest.mark.parametrize("name", TIMEOUTS)
def test_no_function_pays_for_a_processor_that_it_cannot_use(plain: Template, name: str) -> None:
    assert plain.function(name)["MemorySize"] <= WHOLE_PROCESSOR_MB


def test_all_share_one_layer(plain: Template) -> None:
    (layer,) = plain.of("AWS::Lambda::LayerVersion")
    assert all(resource["Layers"] == [f"<{layer}>"] for resource in plain.of("AWS::Lambda::Function").values())


def test_each_writes_to_its_own_log_group_which_forgets(plain: Template, full: Template) -> None:
    for template, days in ((plain, 30), (full, 7)):
        groups = template.of("AWS::Logs::LogGroup")
        for name in TIMEOUTS:
            group = template.function(name)["LoggingConfig"]["LogGroup"].strip("<>")
            assert groups[group]["LogGroupName"] == f"/aws/lambda/{template.function(name)['FunctionName']}"
            assert groups[group]["RetentionInDays"] == days


@pytest.mark.parametrize("name", sorted(TIMEOUTS.keys() - {"install"}))
def test_the_environment_is_one_the_library_reads(full: Template, name: str) -> None:
    read = environment(full.function(name)["Environment"]["Variables"])
    assert (read.cell, sorted(read.clusters)) == ("blue", ["one", "two"])
    assert all(url.startswith("<") for url in read.queues.values())
    cluster_settings = read.clusters["one"]
    assert cluster_settings.read_role_arn == f"<{full.cluster_role('one', 'Read')}.Arn>"
    assert cluster_settings.act_role_arn == f"<{full.cluster_role('one', 'Act')}.Arn>"
    assert cluster_settings.node_roles == ("KarpenterNodeRole-one",)
    assert cluster_settings.settings == {"PREFERENCE_POLICY": "Ignore"}


@pytest.mark.parametrize("name", TIMEOUTS)
def test_a_function_trusts_the_authorities_in_its_layer(plain: Template, name: str) -> None:
    assert plain.function(name)["Environment"]["Variables"]["AWS_CA_BUNDLE"] == authorities.PATH


def test_functions_join_the_cells_network(full: Template, plain: Template) -> None:
    for name in TIMEOUTS:
        network = {"SubnetIds": ["subnet-0123456a", "subnet-0123456b"], "SecurityGroupIds": ["sg-0123456a"]}
        assert full.function(name)["VpcConfig"] == network
        assert "VpcConfig" not in plain.function(name)
        assert "NetworkInterfaces" in {statement.sid for statement in full.statements(full.role_id(name))}


@pytest.mark.parametrize(("role_path", "most"), [("/", MAX_CLUSTERS), (f"/{'p' * 510}/", 2)])
def test_a_full_cell_fits_into_a_functions_environment(role_path: str, most: int) -> None:
    """Clusters with ARNs and URLs as long as CloudFormation makes them; one more is refused."""
    clusters = [cluster(f"cluster-{number:02}") for number in range(most + 1)]
    with pytest.raises(ConfigError, match=r"clusters: got .*(4 KB|1 to 10)"):
        synthesise({"cell": "production", "rolePath": role_path, "clusters": clusters})
    template = synthesise({"cell": "production", "rolePath": role_path, "clusters": clusters[:most]})
    for name in TIMEOUTS:
        variables = template.function(name)["Environment"]["Variables"]
        deployed = (len(key) + len(_deployed(key, value, role_path)) for key, value in variables.items())
        assert sum(deployed) < ENVIRONMENT_BYTES


def _deployed(key: str, value: str, role_path: str) -> str:
    """A variable with its references as long as what they become."""
    if key.endswith("_QUEUE_URL"):
        return "https://sqs.ap-northeast-2.amazonaws.com/123456789012/" + "q" * 60
    if key != "SPOTWRIGHT_CLUSTERS":
        return "x" * 63 if value.startswith("<") else value
    role = f"arn:aws:iam::123456789012:role{role_path}" + "r" * 64
    clusters = {name: {**each, "readRoleArn": role, "actRoleArn": role} for name, each in json.loads(value).items()}
    return json.dumps(clusters, separators=(",", ":"))
