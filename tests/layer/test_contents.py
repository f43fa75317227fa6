"""Nothing that a function needs is missing from the layer, and what it does not need is not there."""

import base64
import hashlib
import re
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name

from layers.core.build import ROOT
from layers.core.contents import CALLS, OMITTED_DISTRIBUTIONS, PRUNED_DISTRIBUTIONS
from tests.layer.conftest import Python

LIBRARY = ROOT / "layers/core/python"
FUNCTIONS = sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py"))


def test_every_module_of_the_library_can_be_imported(python: Python) -> None:
    """Unless it is the command line, which runs from a checkout."""
    modules = sorted(
        ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__")
        for path in LIBRARY.rglob("*.py")
        if "cli" not in path.parts and path.name != "__main__.py"
    )
    tried = f"import importlib\nfor name in {modules!r}: importlib.import_module(name)\nprint('imported')"
    assert python(tried) == "imported\n"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_handler_can_be_imported_without_an_environment(python: Python, function: str) -> None:
    folder = str(ROOT / "functions" / function)
    code = f"sys.path.insert(0, {folder!r})\nimport handler\nprint(callable(handler.handler))"
    assert python(code) == "True\n"


#: What no start of a function may import: module → the functions that need it at once.
STARTS_WITH: dict[str, set[str]] = {
    "spotwright.scheduling.pod_planner": {"provision", "disrupt"},
    "spotwright.adapters.kubernetes.cluster": {"provision", "disrupt", "lifecycle", "catalog", "sweep"},
    "kubernetes": {"provision", "disrupt", "lifecycle", "catalog", "sweep", "install"},
    "yaml": set(),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_start_imports_what_each_invocation_needs(python: Python, function: str) -> None:
    folder = str(ROOT / "functions" / function)
    code = f"sys.path.insert(0, {folder!r})\nimport handler\nprint(*sorted(sys.modules))"
    imported = set(python(code).split())
    assert {module for module in STARTS_WITH if module in imported} == {
        module for module, needed_by in STARTS_WITH.items() if function in needed_by
    }


@pytest.mark.parametrize("service", CALLS)
def test_every_call_can_be_made_and_its_shapes_are_complete(python: Python, service: str) -> None:
    """Reading a shape fails when one that it names was left out."""
    code = f"""
import botocore.session
from botocore.model import ListShape, MapShape, StructureShape

def read(shape, seen):
    if shape is None or shape.name in seen: return
    seen.add(shape.name)
    inner = shape.members.values() if isinstance(shape, StructureShape) else ()
    inner = [shape.member] if isinstance(shape, ListShape) else inner
    inner = [shape.key, shape.value] if isinstance(shape, MapShape) else inner
    for each in inner: read(each, seen)

client = botocore.session.get_session().create_client({service!r}, region_name='eu-central-1')
for name in {CALLS[service]!r}:
    operation = client.meta.service_model.operation_model(name)
    for shape in (operation.input_shape, operation.output_shape, *operation.error_shapes): read(shape, set())
print(client.meta.endpoint_url, *sorted(client.meta.method_to_api_mapping.values()))
"""
    url, *calls = python(code).split()
    assert url.startswith("https://")
    assert calls == sorted(CALLS[service])


def test_a_client_of_another_service_cannot_be_made(python: Python) -> None:
    code = "import botocore.session, botocore.exceptions\ntry: botocore.session.get_session().create_client('lambda')\n"
    assert "Unknown service" in python(code + "except botocore.exceptions.UnknownServiceError as e: print(e)")


#: The adapters that call a service, and the calls that botocore makes for them.
CALLERS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    **{service: ((f"{service}.py", f"{service}/*.py"), set()) for service in CALLS},
    "iam": (("iam.py", "node_roles.py"), set()),
    # Without the pause, which only the command line writes.
    "dynamodb": (("dynamodb/state.py", "dynamodb/table.py"), set()),
    "sts": (("eks/token.py",), {"AssumeRole"}),
    "arc-zonal-shift": (("zonal_shifts.py",), set()),
}


@pytest.mark.parametrize("service", CALLS)
def test_the_calls_are_those_that_adapters_make(service: str) -> None:
    """When this fails, a call was added or given up: say so in layers/core/contents.py."""
    patterns, implied = CALLERS[service]
    adapters = [path for pattern in patterns for path in (LIBRARY / "spotwright/adapters/aws").glob(pattern)]
    words = {word for path in adapters for word in re.findall(r"\w+", path.read_text())}
    operations = botocore.session.get_session().get_service_model(service).operation_names
    assert {operation for operation in operations if xform_name(operation) in words} | implied == set(CALLS[service])


def test_a_real_call_is_written_and_read_by_a_reduced_model(python: Python) -> None:
    """EC2's own protocol, from request to parsed answer, over a stubbed wire."""
    code = """
import botocore.session
from botocore.awsrequest import AWSResponse
client = botocore.session.get_session().create_client(
    'ec2', region_name='eu-central-1', aws_access_key_id='a', aws_secret_access_key='b')
class Raw:
    def stream(self, **_): yield BODY
BODY = (b'<CreateFleetResponse><fleetId>fleet-1</fleetId><fleetInstanceSet><item><instanceType>t3a.large</instanceType>'
        b'<instanceIds><item>i-1</item></instanceIds></item></fleetInstanceSet></CreateFleetResponse>')
def answer(request, **_):
    print(request.body.decode() if isinstance(request.body, bytes) else request.body)
    return AWSResponse(request.url, 200, {}, Raw())
client.meta.events.register('before-send.ec2.CreateFleet', answer)
made = client.create_fleet(Type='instant', LaunchTemplateConfigs=[{'Overrides': [{'InstanceType': 't3a.large'}]}],
    TargetCapacitySpecification={'TotalTargetCapacity': 1}, ClientToken='x')
print(made['FleetId'], made['Instances'][0]['InstanceIds'])
"""
    sent, read = python(code).splitlines()
    assert "LaunchTemplateConfigs.1.Overrides.1.InstanceType=t3a.large" in sent
    assert read == "fleet-1 ['i-1']"


@pytest.mark.parametrize("distribution", [*PRUNED_DISTRIBUTIONS, *OMITTED_DISTRIBUTIONS, "prometheus-client"])
def test_what_nobody_imports_is_not_there(layer: Path, distribution: str) -> None:
    name = distribution.replace("-", "_")
    assert not list(layer.glob(f"{name}*"))


def test_the_generated_client_is_not_there(layer: Path) -> None:
    left = {path.relative_to(layer).as_posix() for path in (layer / "kubernetes").rglob("*.py")}
    assert not any("/models/" in path or "/api/" in path or "/aio/" in path for path in left)


def test_the_layer_is_small(archive: Path) -> None:
    """Lambda allows 250 MB with the function; what is not there needs no loading."""
    with zipfile.ZipFile(archive) as zipped:
        assert sum(zip_info.file_size for zip_info in zipped.infolist()) < 30_000_000


def test_libraries_are_as_published(layer: Path) -> None:
    """Files are left out, and data of AWS's services shrinks; no module differs from the one that its wheel records."""
    here = {path for path in layer.rglob("*.py") if "spotwright" not in path.relative_to(layer).parts}
    compared = set()
    for metadata in layer.glob("*.dist-info"):
        name, _, version = metadata.name.removesuffix(".dist-info").partition("-")
        installed = distribution(name)
        assert installed.version == version
        for file in installed.files or ():
            if (path := layer / file) in here and file.hash is not None:
                digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
                assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == file.hash.value, file
                compared.add(path)
    assert compared == here
