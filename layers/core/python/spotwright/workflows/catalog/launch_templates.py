"""Deleting launch templates that are not used any more.

A template is kept for a day after it was created, for a day after an instance was launched from it, and while the
stored request of an open launch names it. A template that is deleted too early is created again by the next launch.
"""

from datetime import datetime, timedelta
from typing import Final

from spotwright.workflows.ports.bundles import CatalogPorts

# Karpenter deletes a template about a minute after its last use; after a day few have to be created again.
UNUSED_PERIOD: Final = timedelta(days=1)
# EC2 names the template of an instance by this tag:
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/launch-instances-from-launch-template.html
TEMPLATE_ID_TAG: Final = "aws:ec2launchtemplate:id"


def delete_unused(ports: CatalogPorts, *, now: datetime) -> None:
    """Launch rows are read before instances: a launch that is done by then has its instances."""
    candidates = [
        template for template in ports.launch_templates.launch_templates() if now - template.create_time > UNUSED_PERIOD
    ]
    if not candidates:
        return
    requests = [row.request for row in ports.state.launches() if row.request]
    used_ids = {
        instance.tags.get(TEMPLATE_ID_TAG, "")
        for instance in ports.launch_templates.instances_of_cluster()
        if instance.launch_time is not None and now - instance.launch_time <= UNUSED_PERIOD
    }
    for launch_template in candidates:
        if launch_template.id not in used_ids and not any(f'"{launch_template.id}"' in text for text in requests):
            ports.launch_templates.delete_launch_template(launch_template.id)
