"""Reduces botocore's service models to the calls that functions make.

A client reads its whole model first: EC2's, with 700 calls and their documentation, is a quarter of a cold start.
What is left of a model is as it was: `metadata`, the called operations, and the shapes these reach.
"""

import gzip
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

#: Files of an API version that clients read; waiters and examples are for people at a prompt.
_KEPT = ("endpoint-rule-set-1.json.gz", "paginators-1.json", "paginators-1.sdk-extras.json", "service-2.json.gz")

type Model = dict[str, Any]


def reduce_models(data: Path, calls: Mapping[str, Collection[str]]) -> None:
    """Leaves of `botocore/data` these calls by service, and the endpoints of these services. In place.

    Raises KeyError for a call or a service that botocore does not know.
    """
    unknown = sorted(set(calls) - {path.name for path in data.iterdir()})
    if unknown:
        raise KeyError(f"botocore has no model of {', '.join(unknown)}")
    for service in sorted(path for path in data.iterdir() if path.is_dir()):
        if service.name in calls:
            _reduce_service(service, calls[service.name])
        else:
            shutil.rmtree(service)
    _rewrite(data / "endpoints.json", lambda endpoints: _endpoints(endpoints, set(calls)))


def _reduce_service(service: Path, calls: Collection[str]) -> None:
    *old, version = sorted(service.iterdir())
    for path in (*old, *(each for each in version.iterdir() if each.name not in _KEPT)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    packed = version / "service-2.json.gz"
    model = reduced(_unpacked(packed), calls)
    (version / "service-2.json").write_text(_compact(model))
    packed.unlink()
    rules = version / "endpoint-rule-set-1.json.gz"
    # Nine tenths of the larger ones is indentation, which a client reads too.
    (version / "endpoint-rule-set-1.json").write_text(_compact(_undocumented(_unpacked(rules))))
    rules.unlink()
    paginators = version / "paginators-1.json"
    if paginators.exists():
        _rewrite(paginators, lambda found: {"pagination": _only(found["pagination"], calls)})


def reduced(model: Model, calls: Collection[str]) -> Model:
    """A service model with these operations and the shapes they reach, without documentation."""
    operations = {name: _undocumented(model["operations"][name]) for name in sorted(calls)}
    shapes = _reachable(model["shapes"], operations)
    return {**model, "operations": operations, "shapes": {name: _undocumented(shapes[name]) for name in sorted(shapes)}}


def _reachable(shapes: Mapping[str, Any], operations: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes that operations name, and the shapes that those name."""
    found: dict[str, Any] = {}
    waiting = sorted(set(_references(operations)))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = shapes[name]
            waiting.extend(_references(shapes[name]))
    return found


def _references(value: Any) -> Iterator[str]:
    match value:
        case {"shape": str(name)}:
            yield name
        case dict():
            for each in value.values():
                yield from _references(each)
        case list():
            for each in value:
                yield from _references(each)


def _undocumented(value: Any) -> Any:
    match value:
        case dict():
            return {k: _undocumented(each) for k, each in value.items() if not _is_text(k, each)}
        case list():
            return [_undocumented(each) for each in value]
        case _:
            return value


def _is_text(key: str, value: Any) -> bool:
    """A member may itself be called `documentation`; then it is an object."""
    return key == "documentation" and isinstance(value, str)


def _endpoints(endpoints: Model, services: Collection[str]) -> Model:
    partitions = [
        {**each, "services": _only(each["services"], _prefixes(services))} for each in endpoints["partitions"]
    ]
    return {**endpoints, "partitions": partitions}


def _prefixes(services: Collection[str]) -> set[str]:
    """Endpoints are listed by host prefix, which for the price list is not the service's name."""
    return {"api.pricing" if service == "pricing" else service for service in services}


def _only(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _rewrite(path: Path, change: Any) -> None:
    path.write_text(_compact(change(json.loads(path.read_text()))))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _unpacked(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))
