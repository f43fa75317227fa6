"""What is known of AWS: which AMI, user data and instance types a NodeClass means, and how a launch asks EC2 for nodes.

In: model values (EC2NodeClass, NodeClaim, requirements) and what EC2, SSM and IAM answered. Out: catalogs, requests as
plain data, conditions. No calls, no clock. Packages know only those below them: nodeclass and launch, instance_types,
bootstrap and kubelet, images.
"""
