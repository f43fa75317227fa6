"""Quotas of vCPUs: how many of a family the account may run, on demand and as spot, and what Service Quotas says of it.

`POST /_local/quotas {"L-1216C47A": 32}` sets quotas, `DELETE /_local/quotas` forgets what was set. A quota that is not
set is AWS's default where the rule holds, else there is none. Names and defaults:
https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
"""

import math
import re
import threading
from collections.abc import Mapping
from typing import Any

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.catalog.offerings import Offerings
from local.aws.ec2.instances import Instances, LaunchSpecification
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

# (Quota on demand, for spot, default of both), by the letters that a type begins with; HPC and High Memory are no spot.
STANDARD = ("L-1216C47A", "L-34B43A08", 5.0)
FAMILIES = {
    "hpc": ("L-F7808C92", "", 0.0),
    "inf": ("L-1945791B", "L-B5D1601B", 0.0),
    "trn": ("L-2C3B7624", "L-6B0D517C", 0.0),
    "dl": ("L-6E869C2A", "L-85EED4F7", 0.0),
    "u": ("L-43DA4232", "", 0.0),
    "vt": ("L-DB2E81BA", "L-3819A6DF", 0.0),
    "g": ("L-DB2E81BA", "L-3819A6DF", 0.0),
    "p": ("L-417A185B", "L-7212CCBC", 0.0),
    "f": ("L-74FC7D96", "L-88CF9481", 0.0),
    "x": ("L-7295265B", "L-E3A00192", 0.0),
}
# What an account that is in use has, for Service Quotas to say where nothing is enforced.
USUAL_VCPUS = 10_000.0
CODES = {"on-demand": "VcpuLimitExceeded", "spot": "MaxSpotInstanceCountExceeded"}
_ENDED = ("shutting-down", "terminated")


class VcpuQuotas:
    """The account's quotas, by code."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._lock = threading.Lock()
        self._set: dict[str, float] = {}

    def change(self, body: Mapping[str, Any]) -> dict[str, float]:
        unknown = sorted(body.keys() - _defaults().keys())
        if unknown:
            raise KeyError(f"no quota {', '.join(unknown)}; there are {', '.join(sorted(_defaults()))}")
        with self._lock:
            self._set |= {code: float(value) for code, value in body.items()}
            return dict(self._set)

    def forget(self) -> dict[str, float]:
        with self._lock:
            self._set.clear()
        return {}

    def value(self, code: str) -> float:
        """What Service Quotas says. Raises KeyError when there is no such quota."""
        default = _defaults()[code]
        enforced = self._enforced(code)
        return (USUAL_VCPUS if default else default) if enforced is None else enforced

    def places(self, launch: LaunchSpecification) -> float:
        """How many instances of a launch the account may run besides those it runs."""
        code = quota_code(launch.instance_type, launch.capacity_type)
        most = self._enforced(code) if code else None
        if most is None:
            return math.inf
        instances = [one for one in self._emulator.component(Instances).all() if one.state not in _ENDED]
        used = sum(
            self._vcpus(one.launch.instance_type)
            for one in instances
            if quota_code(one.launch.instance_type, one.launch.capacity_type) == code
        )
        return max(0, math.floor((most - used) / self._vcpus(launch.instance_type)))

    def refusal(self, launch: LaunchSpecification) -> AwsError:
        """What EC2 answers for instances beyond the quota."""
        if launch.capacity_type == "spot":
            return AwsError(CODES["spot"], "Max spot instance count exceeded")
        limit = self._enforced(quota_code(launch.instance_type, launch.capacity_type)) or 0
        return AwsError(
            CODES["on-demand"],
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:g} allows for the instance"
            " bucket that the specified instance type belongs to. Please visit"
            " http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
        )

    def _enforced(self, code: str) -> float | None:
        with self._lock:
            if code in self._set:
                return self._set[code]
        return _defaults()[code] if self._emulator.strictness.holds(Rule.VCPU_QUOTAS) else None

    def _vcpus(self, instance_type: str) -> int:
        return int(self._emulator.component(Offerings).describe(instance_type)["VCpuInfo"]["DefaultVCpus"])


def quota_code(instance_type: str, capacity_type: str) -> str:
    """The quota that an instance counts against; "" = none."""
    letters = re.split(r"[\d.-]", instance_type, maxsplit=1)[0]
    found = next((quota for start, quota in FAMILIES.items() if letters.startswith(start)), STANDARD)
    return {"on-demand": found[0], "spot": found[1]}.get(capacity_type, "")


def _defaults() -> dict[str, float]:
    quotas = (STANDARD, *FAMILIES.values())
    return {code: default for on_demand, spot, default in quotas for code in (on_demand, spot) if code}


def add(emulator: Emulator) -> None:
    quotas = emulator.component(VcpuQuotas)
    emulator.route("POST", "/_local/quotas", lambda body, _: quotas.change(body))
    emulator.route("DELETE", "/_local/quotas", lambda _body, _query: quotas.forget())
    emulator.handle("service-quotas", "GetServiceQuota", lambda request: _get_quota(emulator, request))


def _get_quota(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    """https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html"""
    service, code = request.params["ServiceCode"], request.params["QuotaCode"]
    if service != "ec2" or code not in _defaults():
        raise AwsError("NoSuchResourceException", "The request failed because the specified quota does not exist.")
    value = emulator.component(VcpuQuotas).value(code)
    named = {"ServiceCode": service, "QuotaCode": code, "Value": value, "Adjustable": True, "GlobalQuota": False}
    return request.reply({"Quota": named})
