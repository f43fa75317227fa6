"""Pods of a list or a watch, from JSON into the model.

Most pods are replicas of others. What replicas share (requests, constraints, tolerations, conditions …) is kept as the
API server's bytes; of pods whose bytes are equal only the first is decoded, by ``decode_pod_strict``, and the others
are made of it.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw

from spotwright.adapters.kubernetes.codecs.listed_metadata import ABSENT, Metadata, MetadataDecoder
from spotwright.adapters.kubernetes.codecs.objects import decode_time
from spotwright.adapters.kubernetes.codecs.pages import Memo, PageDecoder
from spotwright.adapters.kubernetes.codecs.pod import decode_pod, decode_pod_strict
from spotwright.adapters.kubernetes.codecs.pod_constraints import volume_claim_names
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import USED_ANNOTATIONS, Pod

_replace: Final = msgspec.structs.replace


class _Container(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: Raw = ABSENT
    resources: Raw = ABSENT
    ports: Raw = ABSENT
    restart_policy: Raw = ABSENT


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: Raw = ABSENT
    allocated_resources: Raw = ABSENT
    resources: Raw = ABSENT


class _Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    type: Raw = ABSENT
    status: Raw = ABSENT
    reason: Raw = ABSENT


class _Volume(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: Raw = ABSENT
    persistent_volume_claim: Raw = ABSENT
    ephemeral: Raw = ABSENT


class _Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    node_name: str | None = None
    volumes: tuple[_Volume, ...] | None = None
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    resources: Raw = ABSENT
    overhead: Raw = ABSENT
    node_selector: Raw = ABSENT
    affinity: Raw = ABSENT
    tolerations: Raw = ABSENT
    topology_spread_constraints: Raw = ABSENT
    resource_claims: Raw = ABSENT
    priority: Raw = ABSENT
    priority_class_name: Raw = ABSENT
    scheduler_name: Raw = ABSENT
    host_network: Raw = ABSENT
    termination_grace_period_seconds: Raw = ABSENT


class _Status(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    start_time: str | None = None
    phase: Raw = ABSENT
    nominated_node_name: Raw = ABSENT
    conditions: tuple[_Condition, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None


class PodFields(msgspec.Struct, frozen=True):
    """A pod in Kubernetes' form, with the fields that are used. Raw: as the API server wrote it."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Shared(msgspec.Struct, frozen=True, omit_defaults=True):
    """What equal pods share. Affinity terms depend on the namespace, matchLabelKeys on the labels."""

    namespace: str
    spec: _Spec
    status: _Status
    labels: Raw = ABSENT


def pod_decoder() -> PageDecoder[PodFields, Pod]:
    """Decodes pods; with the same result as ``decode_pod``."""
    metadata_decoder, encoder = MetadataDecoder(used_annotations=USED_ANNOTATIONS), msgspec.json.Encoder()
    templates, node_names = Memo(_decode_template), Memo[str, str](str)

    def convert(fields: PodFields) -> Pod:
        metadata, spec, status = metadata_decoder.decode(fields.metadata), fields.spec, fields.status
        shared = _Shared(
            metadata.namespace or "default",
            _replace(spec, node_name=None, volumes=None),
            _replace(status, start_time=None) if status.start_time else status,
            fields.metadata.labels,
        )
        template = templates(encoder.encode(shared))
        return _replace(
            template,
            metadata=_replace(metadata, namespace=template.metadata.namespace),
            node_name=node_names(spec.node_name) if spec.node_name else "",
            start_time=decode_time(status.start_time),
            volume_claim_names=_claims(spec.volumes, metadata.name) if spec.volumes else (),
        )

    return PageDecoder(PodFields, convert, decode_pod)


def _decode_template(shared: bytes) -> Pod:
    """A pod with what the pods share. Raises one of DECODE_ERRORS."""
    parts: dict[str, Any] = msgspec.json.decode(shared)
    labels = parts.get("labels") or {}
    return decode_pod_strict(
        {"spec": parts["spec"], "status": parts["status"]}, ObjectMeta("", parts["namespace"], labels=labels)
    )


def _claims(volumes: tuple[_Volume, ...], pod: str) -> tuple[str, ...]:
    claims = [volume for volume in volumes if volume.persistent_volume_claim or volume.ephemeral]
    if not claims:
        return ()
    spec = msgspec.json.decode(msgspec.json.encode({"volumes": claims}))
    names = tuple(volume_claim_names(spec, pod))
    return msgspec.convert(names, tuple[str, ...])
