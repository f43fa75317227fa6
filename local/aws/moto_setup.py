"""moto, set up before its first import: AWS's managed policies are there, and it starts in half the time.

Left to itself moto reads the instance offerings of thirty regions and parses botocore's EC2 model, 4 MB of
JSON, four times over.
"""

import functools
import importlib
import os
from typing import Any

import botocore.loaders

# Read by moto when it makes its backends: no images of its own invention, but AWS's managed policies.
SETTINGS = {"MOTO_IAM_LOAD_MANAGED_POLICIES": "true", "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}


def prepare(region: str) -> None:
    """Call once, before anything imports moto; `region` is the only one that will have instance offerings."""
    os.environ.update(SETTINGS)
    _read_models_once()
    resources: Any = importlib.import_module("moto.utilities.utils")
    load = resources.load_resource

    def load_of_region(path: str) -> Any:
        is_foreign = "instance_type_offerings" in path and f"/{region}.json" not in path.replace(os.sep, "/")
        return [] if is_foreign else load(path)

    resources.load_resource = load_of_region
    try:
        importlib.import_module("moto.ec2.models")
    finally:
        resources.load_resource = load


def _read_models_once() -> None:
    """botocore makes a reader per session and moto a session per look-up; let them share what was read."""
    loader: Any = botocore.loaders.JSONFileLoader
    read = loader.load_file
    reader = loader()
    kept = functools.cache(lambda path: read(reader, path))
    loader.load_file = lambda _self, path: kept(path)
    _list_services_once(botocore.loaders.Loader)


def _list_services_once(loader: Any) -> None:
    """To find one model, botocore looks into the folders of all 400 services."""
    look = loader.list_available_services
    found: dict[object, list[str]] = {}

    def listed(self: Any, type_name: str) -> list[str]:
        key = (*self.search_paths, type_name)
        if key not in found:
            found[key] = look(self, type_name)
        return found[key]

    loader.list_available_services = listed
