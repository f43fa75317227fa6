"""The CDK app of one cell."""

import os

# CDK's runtime warns of every Node major past its end of life, in each command, although it runs on it; which Node
# is there is the machine's business. Read when aws_cdk is imported, hence here.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")
