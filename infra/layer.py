"""The one layer of all functions, built by `layers.core.build` when a stack is synthesised with its assets."""

import shutil
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from layers.core.build import ROOT, build_layer, layer_key

RUNTIME = lambda_.Runtime.PYTHON_3_13


def lambda_architecture(name: str) -> lambda_.Architecture:
    """CDK's value for `arm64` or `x86_64`."""
    return {"arm64": lambda_.Architecture.ARM_64, "x86_64": lambda_.Architecture.X86_64}[name]


def core_layer(scope: Construct, architecture: str) -> lambda_.LayerVersion:
    """Locked dependencies, library and bytecode. Its asset is named by what goes in, so it is known unbuilt."""
    return lambda_.LayerVersion(
        scope,
        "Layer",
        description="Spotwright's library and its locked dependencies",
        compatible_runtimes=[RUNTIME],
        compatible_architectures=[lambda_architecture(architecture)],
        code=lambda_.Code.from_asset(
            str(ROOT / "layers/core"),
            asset_hash=f"{architecture}-{layer_key(architecture)}",
            asset_hash_type=AssetHashType.CUSTOM,
            bundling=BundlingOptions(
                image=DockerImage.from_registry("docker-is-not-used"), local=_LayerBundling(architecture)
            ),
        ),
    )


@jsii.implements(ILocalBundling)
class _LayerBundling:
    """Puts the built zip where CDK looks for what docker would have made."""

    def __init__(self, architecture: str) -> None:
        self._architecture = architecture

    def try_bundle(self, output_dir: str, *, image: DockerImage, **options: Any) -> bool:
        shutil.copyfile(build_layer(self._architecture), Path(output_dir) / "layer.zip")
        return True
