"""Checks all objects of manifests, and leaves out those whose kinds nobody here knows."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from spotwright.cli import InputError
from spotwright.cli.inputs.conversion import object_name
from spotwright.cli.inputs.documents import Document, Documents, Json
from spotwright.cli.inputs.validation.kinds import Api, api_of, owns_pods, versions_of
from spotwright.cli.inputs.validation.kubernetes import KubernetesValidator
from spotwright.cli.inputs.validation.problems import Kind, Problem, Problems
from spotwright.cli.inputs.validation.remarks import remarks

# What envsubst, Terraform, Helm and authors of guides replace.
_PLACEHOLDER: Final = re.compile(r"'[^']*(?:\$\{\w+\}|\$[A-Z_]{2,}|<<?[\w -]+>>?|\{\{[^}]*\}\})")
_FORGIVABLE: Final = (Kind.UNKNOWN, Kind.DUPLICATE)


class Strictness(StrEnum):
    """What becomes of unknown fields and duplicate keys, by the names of ``kubectl apply --validate``."""

    STRICT = "strict"
    WARN = "warn"
    IGNORE = "ignore"


def check_documents(documents: Documents, strictness: Strictness = Strictness.STRICT) -> Documents:
    """The objects that a plan can be made of; a note names the others that own pods.

    Raises InputError with everything that an API server would refuse in any of the files. Objects of case files need
    not be complete: only the types of their values are checked.
    """
    validator = KubernetesValidator()
    errors: list[str] = []
    warnings: list[str] = []
    kept: list[Document] = []
    others: list[Document] = []
    for document in documents.objects:
        is_other = api_of(document.content) is Api.OTHER
        for problem in dict.fromkeys(_problems(document, validator)):
            # kubectl takes the last of such keys, and of a kind that is not known none decides what is planned.
            is_harmless = is_other and problem.kind is Kind.DUPLICATE and strictness is not Strictness.IGNORE
            if problem.kind is Kind.CLEAR or is_harmless:
                warnings.append(_sentence(document, problem))
            elif problem.kind not in _FORGIVABLE or strictness is Strictness.STRICT:
                errors.append(_sentence(document, problem))
            elif strictness is Strictness.WARN and not _is_noted_by_decoder(document, problem):
                warnings.append(_sentence(document, problem))
        (others if is_other else kept).append(document)
    if errors:
        heading = [f"{len(errors)} errors, so that nothing is planned:"] if len(errors) > 1 else []
        raise InputError("\n".join((*heading, *errors)))
    remarked = (_sentence(document, problem) for document in kept for problem in remarks(document.content))
    notes = (*documents.notes, *warnings, *remarked, *_notes(others))
    return msgspec.structs.replace(documents, objects=tuple(kept), notes=notes)


def refuse_duplicates(documents: Documents) -> None:
    """Raises InputError for keys that a map has twice."""
    errors = [_sentence(document, problem) for document in documents.objects for problem in _duplicates(document)]
    if errors:
        raise InputError("\n".join(errors))


def _sentence(document: Document, problem: Problem) -> str:
    hint = " (a placeholder: fill it in first)" if _PLACEHOLDER.search(problem.text) else ""
    return f"{document.where(problem.path)}: {object_name(document.content)}: {problem}{hint}"


def _is_noted_by_decoder(document: Document, problem: Problem) -> bool:
    """Unknown fields of NodePools and EC2NodeClasses are problems of these objects, also in a running cluster."""
    return document.content["kind"] in ("NodePool", "EC2NodeClass") and problem.path[0] == "spec"


def _duplicates(document: Document) -> Problems:
    place = document.place
    if place is None:
        return
    for path in place.duplicates:
        if path[: len(place.path)] == place.path and len(path) > len(place.path):
            text = "this key is there twice: leave one of them out (the last counts)"
            yield Problem(Kind.DUPLICATE, path[len(place.path) :], text)


def _problems(document: Document, validator: KubernetesValidator) -> Problems:
    yield from _duplicates(document)
    place = document.place
    is_case = place is not None and place.is_case
    for problem in _object_problems(_with_version(document.content) if is_case else document.content, validator):
        if problem.kind is Kind.TYPE or (not is_case and not _is_dropped(problem)):
            yield problem


def _is_dropped(problem: Problem) -> bool:
    """Whether it is in ``status``, which the API server reads, and drops before it checks values."""
    return problem.path[:1] == ("status",) and problem.kind is not Kind.UNKNOWN


def _with_version(content: Json) -> Json:
    """The object of a case file, which need not state its apiVersion."""
    versions = versions_of(content["kind"])
    return content | {"apiVersion": versions[0]} if not content.get("apiVersion") and versions else content


def _object_problems(content: Json, validator: KubernetesValidator) -> Problems:
    match api_of(content):
        case Problem() as problem:
            yield problem
        case Api.KUBERNETES:
            yield from validator.problems(content)
        case Api.KARPENTER:
            from spotwright.cli.inputs.validation.karpenter import karpenter_problems

            yield from karpenter_problems(content, validator)
        case Api.BEFORE_V1:
            # The conversion finds what is wrong with the rest.
            from spotwright.cli.inputs.validation.karpenter import karpenter_metadata_problems

            yield from karpenter_metadata_problems(content, validator)


def _notes(others: list[Document]) -> Iterator[str]:
    """Objects of unknown kinds that own pods, by kind."""
    by_kind: dict[str, list[str]] = {}
    for document in others:
        if owns_pods(document.content):
            kind = f"{document.content['kind']} ({document.content['apiVersion']})"
            by_kind.setdefault(kind, []).append(str(document.content["metadata"].get("name") or "(no name)"))
    for kind, names in sorted(by_kind.items()):
        yield f"not counted: the pods of {kind} {', '.join(names)}, a kind that is not known here"
