"""Launch templates that nothing starts from any more go.

A template is kept while a launch that has no answer yet names it, while an instance was started from it lately, and
for as long after it was made. Whatever goes too early is made again by the next launch; it costs a call.
"""

from datetime import datetime, timedelta
from typing import Final

from spotwright.workflows.catalog_ports import Cataloguing

# Karpenter deletes a template about a minute after its last use; a day saves most of making them again.
UNUSED: Final = timedelta(days=1)
# EC2 names the template of an instance by this tag:
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/launch-instances-from-launch-template.html
STARTED_FROM: Final = "aws:ec2launchtemplate:id"


def collect(ports: Cataloguing, *, now: datetime) -> None:
    """Delete what has not been used for a day. Rows are read before instances: what leaves the one is in the other."""
    old = [one for one in ports.templates.launch_templates() if now - one.create_time > UNUSED]
    if not old:
        return
    requests = [row.request for row in ports.state.launches() if row.request]
    recent = {
        one.tags.get(STARTED_FROM, "")
        for one in ports.templates.instances_of_cluster()
        if one.launch_time is not None and now - one.launch_time <= UNUSED
    }
    for one in old:
        if one.id not in recent and not any(f'"{one.id}"' in text for text in requests):
            ports.templates.delete_launch_template(one.id)
