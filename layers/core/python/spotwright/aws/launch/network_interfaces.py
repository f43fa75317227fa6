"""The network interfaces of a launch template: those of the class, else the EFAs that pods request, else a single one.

Source: the EC2 API reference, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, and
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html (cards and device indices).
"""

from typing import Any

from spotwright.aws.instance_types.compatibility import EFA_ONLY
from spotwright.model.karpenter.nodeclass import EC2NodeClass


def network_interfaces(nodeclass: EC2NodeClass, *, efa_count: int, ipv6: bool) -> list[dict[str, Any]]:
    """Interface specifications, each with the security groups, which a template with interfaces states nowhere else.

    ``efa_count``: EFA interfaces that pods request. An ``efa-only`` interface has no addresses and no fields for them.
    """
    groups = [group.id for group in nodeclass.security_groups]
    if nodeclass.network_interfaces:
        positions = [
            (network_interface.network_card_index, network_interface.device_index, network_interface.interface_type)
            for network_interface in nodeclass.network_interfaces
        ]
    elif efa_count:
        positions = [(card, 1 if card else 0, "efa") for card in range(efa_count)]
    else:
        positions = [(0, 0, "")]
    return [
        {"DeviceIndex": device, "Groups": groups}
        | ({"NetworkCardIndex": card, "InterfaceType": kind} if kind else {})
        | ({} if kind == EFA_ONLY else _addresses(nodeclass, ipv6=ipv6, primary=(card, device) == (0, 0)))
        for card, device, kind in positions
    ]


def _addresses(nodeclass: EC2NodeClass, *, ipv6: bool, primary: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if primary and nodeclass.associate_public_ip_address is not None:
        fields["AssociatePublicIpAddress"] = nodeclass.associate_public_ip_address
    if ipv6:
        fields |= {"Ipv6AddressCount": 1} | ({"PrimaryIpv6": True} if primary else {})
    if nodeclass.ip_prefix_count is not None:
        fields["Ipv6PrefixCount" if ipv6 else "Ipv4PrefixCount"] = nodeclass.ip_prefix_count
    tracking = nodeclass.connection_tracking
    tracking_fields = {
        "TcpEstablishedTimeout": tracking.tcp_established_timeout,
        "UdpStreamTimeout": tracking.udp_stream_timeout,
        "UdpTimeout": tracking.udp_timeout,
    } if tracking else {}  # fmt: skip
    tracking_fields = {key: value for key, value in tracking_fields.items() if value is not None}
    return fields | ({"ConnectionTrackingSpecification": tracking_fields} if tracking_fields else {})
