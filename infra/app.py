"""The CDK app: `cdk synth`, `deploy`, `diff` and `destroy` start here (cdk.json)."""

import sys

from aws_cdk import App, Environment, Validations
from cdk_nag import AwsSolutionsChecks

from infra.config import parse_config
from infra.fields import ConfigError
from infra.stack import SpotwrightStack
from layers.core.build import LayerError


def new_app(context: dict[str, object] | None = None) -> App:
    """An app with this context, or that of cdk.json and the command line.

    Without the metadata resource, which would only tell AWS which constructs are used, and without CDK's check of
    templates against CloudFormation's schemas, which is two thirds of a synthesis; the tests run it.
    """
    return App(context=context, analytics_reporting=False, builtin_cloud_formation_validation=False)


def add_stack(app: App, env: Environment | None = None) -> SpotwrightStack:
    """The stack that the app's context describes. Raises ConfigError.

    Without `env` account, region and partition are whatever it is deployed to.
    """
    config = parse_config(app.node.try_get_context("spotwright"), app.node.try_get_context("architecture"))
    return SpotwrightStack(app, config, env)


def add_checks(app: App) -> None:
    """AWS's own rules for solutions: a finding that nobody acknowledged with a reason fails the synthesis."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def main() -> None:
    app = new_app()
    try:
        add_checks(app)
        add_stack(app)
        app.synth()
    except (ConfigError, LayerError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
