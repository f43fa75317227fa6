"""``spec.kubelet`` of an EC2NodeClass: validation, amounts, and CEL expressions in their place.

In: the raw configuration. Out: errors as sentences, amounts for one instance type. Knows no AMI family and no type.
"""
