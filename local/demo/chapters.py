"""The chapters, in order: two pools at once, an interruption, two more manifests, zero and back, nothing left."""

import subprocess
import time

from local.demo.deploy import ROOT, session
from local.demo.story import HELD_AT_ZERO_SECONDS, Story, claims_of, expect, initialized
from local.demo.watch import Watch


def spot_and_on_demand(story: Story) -> None:
    with story.section("spot-t3a.yaml and scale-up-cmr.yaml together"):
        story.apply("spot-t3a.yaml")
        story.apply("scale-up-cmr.yaml")
        story.see("both pods of on-spot run", story.running("on-spot", 2), seconds=90)
        story.see("all five pods of inflate run", story.running("inflate", 5), seconds=60)
        story.see("one NodeClaim of pool spot, initialized", lambda w: initialized(w, "spot", 1), seconds=30)
        story.see(
            "every NodeClaim of pool default initialized",
            lambda w: initialized(w, "default", len(claims_of(w, "default"))),
            seconds=30,
        )
        story.show()
        _check_spot_node(story)


def _check_spot_node(story: Story) -> None:
    """What the author of spot-t3a.yaml asked of the instance and the node."""
    spot = next(i for i in story.instances() if i["tags"].get("karpenter.sh/nodepool") == "spot")
    expect(spot["instanceType"] == "t3a.large", f"a t3a.large was asked for, EC2 runs {spot['instanceType']}")
    expect(spot["capacityType"] == "spot", f"spot was asked for, EC2 runs {spot['capacityType']}")
    expect(spot["tags"].get("Name") == "spot-node", f"tag Name=spot-node was asked for: {spot['tags']}")
    options = spot["metadataOptions"]
    expect(options.get("HttpTokens") == "optional", f"httpTokens optional was asked for: {options}")
    expect(int(options.get("HttpPutResponseHopLimit", 0)) == 2, f"hop limit 2 was asked for: {options}")
    sizes = [d.get("Ebs", d).get("VolumeSize") for d in spot["blockDevices"]]
    expect(100 in [int(s) for s in sizes if s], f"a root volume of 100 GiB was asked for: {spot['blockDevices']}")
    node = next(n for n in story.watch.all("nodes") if n["spec"].get("providerID", "").endswith(spot["id"]))
    expect(node["metadata"]["labels"].get("node-group-type") == "spot", "label node-group-type=spot is missing")
    taints = [(t["key"], t.get("value"), t["effect"]) for t in node["spec"].get("taints") or ()]
    expect(("spot", "only", "NoSchedule") in taints, f"taint spot=only:NoSchedule is missing: {taints}")
    story.printer.say("seen: spot t3a.large, 100Gi, IMDS optional with hop limit 2, label and taint as asked")


def spot_interruption(story: Story) -> None:
    with story.section("a spot interruption: replacement first, then drain, then gone") as started:
        doomed = next(i for i in story.instances() if i["tags"].get("karpenter.sh/nodepool") == "spot")
        claim = next(c for c in claims_of(story.watch, "spot"))
        story.stack.control("POST", "/_local/interrupt", {"instanceId": doomed["id"]})
        story.printer.say(f"EC2 warns that {doomed['id']} will be taken back in two minutes")
        name = claim["metadata"]["name"]
        story.see(f"nodeclaim {name} gone", lambda w: bool(_of(w, started, "gone", name)), seconds=130)
        story.see("both pods of on-spot run again", story.running("on-spot", 2), seconds=60)
        fleet = story.watch.since(started, "aws", "CreateFleet")
        evicted = [e for e in story.watch.since(started, "pods", "leaving") if "on-spot" in e.subject]
        expect(bool(fleet), "no CreateFleet after the warning")
        expect(bool(evicted), "no pod was evicted")
        expect(fleet[0].at < evicted[0].at, "a pod was evicted before the replacement was asked for")
        story.printer.say(f"seen: CreateFleet {evicted[0].at - fleet[0].at:.1f} s before the first eviction")


def _of(watch: Watch, at: float, what: str, subject: str) -> list[object]:
    return [e for e in watch.since(at, what=what) if e.subject == subject]


def generation_six(story: Story) -> None:
    with story.section("scale-up-cmr.yaml deleted, basic-gen6.yaml"):
        story.delete("scale-up-cmr.yaml")
        story.see("no NodeClaim of pool default", lambda w: not claims_of(w, "default"), seconds=60)
        story.apply("basic-gen6.yaml")
        story.inflate(5, {"eks-team": "my-team"})
        story.see("all five pods of inflate run", story.running("inflate", 5), seconds=90)
        story.see("NodeClaims of pool default initialized", _all_initialized, seconds=30)
        story.show()
        ours = [i for i in story.instances() if i["tags"].get("karpenter.sh/nodepool") == "default"]
        generations = {i["instanceType"]: _generation(i["instanceType"]) for i in ours}
        expect(all(g > 5 for g in generations.values()), f"a generation above 5 was asked for: {generations}")
        expect(all(i["tags"].get("intent") == "apps" for i in ours), "instance tag intent=apps is missing")


def _all_initialized(watch: Watch) -> bool:
    return bool(claims_of(watch, "default")) and initialized(watch, "default", len(claims_of(watch, "default")))


def _generation(instance_type: str) -> int:
    return int(next(letter for letter in instance_type if letter.isdigit()))


def graviton(story: Story) -> None:
    with story.section("basic-gen6.yaml deleted, t4g-seoul.yaml"):
        story.stack.kubectl("delete", "deployment", "inflate")
        story.delete("basic-gen6.yaml")
        story.see("no NodeClaim of pool default", lambda w: not claims_of(w, "default"), seconds=60)
        refused = story.apply("t4g-seoul.yaml", check=False)
        expect(refused.returncode != 0 and "spec.limit" in refused.stderr, "kubectl apply took spec.limit")
        story.printer.say(f"kubectl apply refuses it: {refused.stderr.strip().splitlines()[-1]}")
        story.apply("t4g-seoul.yaml", "--validate=warn")
        story.inflate(5, {"kubernetes.io/arch": "arm64"})
        story.see("all five pods of inflate run", story.running("inflate", 5), seconds=90)
        story.see("NodeClaims of pool default initialized", _all_initialized, seconds=30)
        story.see("an event names the unknown field", lambda w: "did you mean limits" in _events(w), seconds=30)
        ours = [i for i in story.instances() if i["tags"].get("karpenter.sh/nodepool") == "default"]
        expect(
            all(i["instanceType"].startswith("t4g.") and i["zone"] == "ap-northeast-2a" for i in ours),
            f"t4g in ap-northeast-2a was asked for: {[(i['instanceType'], i['zone']) for i in ours]}",
        )
        story.show()


def _events(watch: Watch) -> str:
    return "\n".join(e.text for e in watch.since(0, "events"))


def zero_and_back(story: Story) -> None:
    with story.section("scale to zero, held, and back"):
        story.stack.kubectl("scale", "deployment", "inflate", "--replicas=0")
        story.delete("spot-t3a.yaml")
        story.see("no instance", lambda w: not story.instances(), seconds=150)
        story.see("forwarder and CoreDNS pending", _followers_pending, seconds=60)
        since = time.time()
        story.printer.say(f"holding zero nodes for {HELD_AT_ZERO_SECONDS} s")
        held = not story.watch.until(lambda w: bool(w.since(since, "aws", "CreateFleet")), seconds=HELD_AT_ZERO_SECONDS)
        expect(held, "a node was launched while only followers were pending")
        expect(not story.instances(), "an instance runs at zero")
        story.printer.say(f"seen: zero nodes for {HELD_AT_ZERO_SECONDS} s and no launch")
        story.stack.kubectl("scale", "deployment", "inflate", "--replicas=5")
        story.see("all five pods of inflate run", story.running("inflate", 5), seconds=90)


def _followers_pending(watch: Watch) -> bool:
    pending = [p for p in watch.all("pods") if p.get("status", {}).get("phase") == "Pending"]
    names = " ".join(p["metadata"]["name"] for p in pending)
    return "coredns" in names and "spotwright-forwarder" in names


def nothing_left(story: Story) -> None:
    with story.section("spotwright uninstall --drain, cdk destroy"):
        done = subprocess.run(
            [str(ROOT / ".venv/bin/spotwright"), "uninstall", "--drain", "--cluster", story.stack.cluster],
            env=story.stack.environment() | {"SPOTWRIGHT_STACK": story.deployment.stack_name},
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        story.printer.block(done.stdout + done.stderr)
        expect(done.returncode == 0, f"spotwright uninstall ended with {done.returncode}")
        expect(not story.instances(), "instances are left after uninstall --drain")
        story.delete("t4g-seoul.yaml")
        story.deployment.destroy()
        left = _left_in_aws(story)
        expect(not left, f"left in AWS: {left}")
        expect(not story.deployment.outputs(), "the stack is still there after cdk destroy")
        story.printer.say(
            "nothing left: no instance, no launch template, no instance profile, no queue, no table, no stack"
        )


def _left_in_aws(story: Story) -> list[str]:
    """Names of what Spotwright and its stack make in an account and must take away again."""
    account, endpoint = session(story.stack), story.stack.aws_endpoint
    ec2, iam = account.client("ec2", endpoint_url=endpoint), account.client("iam", endpoint_url=endpoint)
    sqs, dynamodb = account.client("sqs", endpoint_url=endpoint), account.client("dynamodb", endpoint_url=endpoint)
    profiles = iam.list_instance_profiles()["InstanceProfiles"]
    return [
        *(one["LaunchTemplateName"] for one in ec2.describe_launch_templates()["LaunchTemplates"]),
        *(one["InstanceProfileName"] for one in profiles if one["Path"].startswith("/karpenter/")),
        *sqs.list_queues().get("QueueUrls", ()),
        *dynamodb.list_tables()["TableNames"],
    ]


CHAPTERS = (spot_and_on_demand, spot_interruption, generation_six, zero_and_back, graviton, nothing_left)
