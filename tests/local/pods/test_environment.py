"""The environment of a container, as a kubelet makes it."""

import pytest

from local.pods.environment import ContainerConfigError, container_environment, expand_references


def test_environment_is_made_as_a_kubelet_makes_it() -> None:
    """envFrom first, env over it, in order, with references to what came before."""
    pod = {"metadata": {"namespace": "a", "name": "p", "labels": {"app": "x"}}, "spec": {"nodeName": "n"}}
    container = {
        "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "P_"}],
        "env": [
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "ALL", "value": "$(APP)/$(P_level)/$(UNKNOWN)/$$(APP)"},
            {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}}},
        ],
    }
    data = {("ConfigMap", "settings"): {"level": "info"}, ("Secret", "s"): {"k": "cGFzcw=="}}
    made = container_environment(pod, container, {"HOME": "/h"}, lambda kind, _, name: data.get((kind, name)))
    assert made == {
        "HOME": "/h",
        "P_level": "info",
        "APP": "x",
        "SECRET": "pass",
        "ALL": "x/info/$(UNKNOWN)/$(APP)",
    }


def test_a_missing_secret_keeps_the_container_from_starting() -> None:
    pod = {"metadata": {"namespace": "a", "name": "p"}, "spec": {}}
    container = {"env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
    with pytest.raises(ContainerConfigError, match="Secret s has no k"):
        container_environment(pod, container, {}, lambda *_: None)


def test_command_words_are_expanded() -> None:
    assert (
        expand_references("--listen=127.0.0.1:$(CONTAINER_PORT_8080)", {"CONTAINER_PORT_8080": "1"})
        == "--listen=127.0.0.1:1"
    )
