"""Who else provisions nodes in a cluster, as workflows ask for it."""

from datetime import datetime
from typing import Protocol


class OtherProvisionerPort(Protocol):
    """Karpenter, or EKS Auto Mode, in the same cluster."""

    def running(self, *, now: datetime) -> str:
        """Who runs now, as messages name it, such as ``Deployment karpenter/karpenter``.

        "" = nobody, or cdk.json says that it is not to be looked for. Raises ApiError.
        """
        ...
