"""Stateful stand-ins for the outside world: cluster, EC2, state, queues and clock, in memory and in virtual time.

`cluster` stands for the API server, `ec2` for EC2, `state` for DynamoDB, S3 and the queues; `kubelets` plays machines,
kube-scheduler and controllers, `volume_provisioner` the CSI driver; `effects` and `outages` put faults between.
They implement ``workflows.ports``; the contract suite runs on them and on the real adapters.
"""
