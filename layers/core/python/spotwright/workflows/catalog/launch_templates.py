"""Launch templates that nothing starts from any more go.

A template is kept while a launch that has no answer yet names it, while an instance was started from it lately, and
for as long after it was made. Whatever goes too early is made again by the next launch; it costs a call.
"""

from datetime import datetime, timedelta
from typing import Final

from spotwright.workflows.ports.bundles import CatalogPorts

# Karpenter deletes a template about a minute after its last use; a day saves most of making them again.
UNUSED_PERIOD: Final = timedelta(days=1)
# EC2 names the template of an instance by this tag:
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/launch-instances-from-launch-template.html
TEMPLATE_ID_TAG: Final = "aws:ec2launchtemplate:id"


def delete_unused(ports: CatalogPorts, *, now: datetime) -> None:
    """Delete what has not been used for a day. Rows are read before instances: what leaves the one is in the other."""
    old = [
        template for template in ports.launch_templates.launch_templates() if now - template.create_time > UNUSED_PERIOD
    ]
    if not old:
        return
    requests = [row.request for row in ports.state.launches() if row.request]
    recent = {
        instance.tags.get(TEMPLATE_ID_TAG, "")
        for instance in ports.launch_templates.instances_of_cluster()
        if instance.launch_time is not None and now - instance.launch_time <= UNUSED_PERIOD
    }
    for launch_template in old:
        if launch_template.id not in recent and not any(f'"{launch_template.id}"' in text for text in requests):
            ports.launch_templates.delete_launch_template(launch_template.id)
