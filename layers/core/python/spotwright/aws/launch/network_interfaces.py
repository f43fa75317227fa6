"""The network interfaces of a launch template: as the class lists them, as many EFAs as pods ask for, or just one.

Source: the EC2 API reference, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, and
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html (cards and device indices).
"""

from typing import Any, Final

from spotwright.model.karpenter.nodeclass import EC2NodeClass

EFA_ONLY: Final = "efa-only"


def network_interfaces(nodeclass: EC2NodeClass, *, efa_count: int, ipv6: bool) -> list[dict[str, Any]]:
    """Interface specifications; groups stand in each, since an interface is stated. ``efa_count``: how many, 0 = none.

    An ``efa-only`` interface carries no addresses, so nothing about addresses is said of it.
    """
    groups = [group.id for group in nodeclass.security_groups]
    if nodeclass.network_interfaces:
        places = [
            (network_interface.network_card_index, network_interface.device_index, network_interface.interface_type)
            for network_interface in nodeclass.network_interfaces
        ]
    elif efa_count:
        places = [(card, 1 if card else 0, "efa") for card in range(efa_count)]
    else:
        places = [(0, 0, "")]
    return [
        {"DeviceIndex": device, "Groups": groups}
        | ({"NetworkCardIndex": card, "InterfaceType": kind} if kind else {})
        | ({} if kind == EFA_ONLY else _addresses(nodeclass, ipv6=ipv6, primary=(card, device) == (0, 0)))
        for card, device, kind in places
    ]


def _addresses(nodeclass: EC2NodeClass, *, ipv6: bool, primary: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if primary and nodeclass.associate_public_ip_address is not None:
        found["AssociatePublicIpAddress"] = nodeclass.associate_public_ip_address
    if ipv6:
        found |= {"Ipv6AddressCount": 1} | ({"PrimaryIpv6": True} if primary else {})
    if nodeclass.ip_prefix_count is not None:
        found["Ipv6PrefixCount" if ipv6 else "Ipv4PrefixCount"] = nodeclass.ip_prefix_count
    tracking = nodeclass.connection_tracking
    stated = {
        "TcpEstablishedTimeout": tracking.tcp_established_timeout,
        "UdpStreamTimeout": tracking.udp_stream_timeout,
        "UdpTimeout": tracking.udp_timeout,
    } if tracking else {}  # fmt: skip
    timeouts = {key: value for key, value in stated.items() if value is not None}
    return found | ({"ConnectionTrackingSpecification": timeouts} if timeouts else {})
