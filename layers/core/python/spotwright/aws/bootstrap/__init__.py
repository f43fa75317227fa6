"""User data: how an instance joins the cluster, in the format of its AMI family.

In: EC2NodeClass, cluster facts, BootstrapOptions. Out: the text, or a Refusal. Knows nothing of EC2.
"""
