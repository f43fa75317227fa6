"""Which AMI an instance type starts from.

In: amiSelectorTerms, answers of SSM and EC2. Out: AMIs with the requirements of the types they are for, and the AMI
family's defaults. Knows nothing of instance types beyond their requirements.
"""
