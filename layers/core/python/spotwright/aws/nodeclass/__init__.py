"""An EC2NodeClass: its status and conditions, its hash, its instance profile, and drift from it.

In: the class and what its selectors found. Out: the class with its new status; hashes that equal Karpenter's. Asks
nobody, writes nothing.
"""
