"""The EC2NodeClass of Karpenter's own test vectors, and the hash it writes for it."""

from typing import Any

CLASS_SPEC: dict[str, Any] = {
    "role": "role-1",
    "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
    "context": "fake-context",
    "detailedMonitoring": False,
    "associatePublicIPAddress": False,
    "metadataOptions": {
        "httpEndpoint": "disabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "optional",
    },
    "blockDeviceMappings": [
        {
            "deviceName": "map-device-1",
            "rootVolume": False,
            "ebs": {
                "deleteOnTermination": False,
                "encrypted": False,
                "iops": 0,
                "kmsKeyID": "fakeKMSKeyID",
                "snapshotID": "fakeSnapshot",
                "throughput": 0,
                "volumeSize": "2G",
                "volumeType": "standard",
            },
        },
        {"deviceName": "map-device-2"},
    ],
    "userData": "userdata-test-1",
}
CLASS_HASH = "11148166120438674859"
CERTIFICATE_AUTHORITY = "test-ca-bundle"
