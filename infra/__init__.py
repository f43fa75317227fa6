"""The CDK app of one cell."""

import os

# CDK's runtime warns in each command of every Node major past its end of life, although it runs on it; which Node is
# there is the machine's business. It reads the majors not to warn of when aws_cdk is imported, hence here.
_SILENCE = "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"
os.environ[_SILENCE] = ",".join([*filter(None, [os.environ.get(_SILENCE)]), "18", "20"])
