"""The forwarder's image: the one that cdk.json names, or one that `cdk deploy` builds and pushes.

The CDK CLI builds it with docker, or with what the environment variable CDK_DOCKER names (finch), and pushes it to the
registry that `cdk bootstrap` made. Synthesis reads its files and builds nothing.
"""

from aws_cdk import IgnoreMode
from aws_cdk import aws_ecr_assets as assets
from constructs import Construct

from infra.config import Cluster
from layers.core.build import ROOT

#: What the image is made of, as .dockerignore says it.
_IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


class ForwarderImages(Construct):
    """One image for each architecture that a cluster without `forwarderImage` has its forwarder's nodes of."""

    def __init__(self, scope: Construct) -> None:
        super().__init__(scope, "ForwarderImages")

    def uri(self, cluster: Cluster) -> str:
        if cluster.forwarder_image:
            return cluster.forwarder_image
        built = self.node.try_find_child(cluster.forwarder_architecture)
        if not isinstance(built, assets.DockerImageAsset):
            built = self._build(cluster.forwarder_architecture)
        return built.image_uri

    def _build(self, architecture: str) -> assets.DockerImageAsset:
        return assets.DockerImageAsset(
            self,
            architecture,
            directory=str(ROOT),
            file="forwarder/Dockerfile",
            platform=assets.Platform.custom(f"linux/{architecture}"),
            ignore_mode=IgnoreMode.DOCKER,
            exclude=_IGNORED,
        )
