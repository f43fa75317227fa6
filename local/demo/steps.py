"""The steps, in order: pools and manifests, an interruption, fewer replicas, zero and back, nothing left."""

import subprocess
import time

from local.cdk_deployment import ROOT, administrator_session
from local.demo.run import PATIENCE, ZERO_NODES_SECONDS, DemoRun, are_initialized, expect, nodeclaims_of
from local.demo.timeline import Timeline


def spot_and_on_demand(run: DemoRun) -> None:
    with run.section("spot-t3a.yaml and scale-up-cmr.yaml together"):
        run.apply("spot-t3a.yaml")
        run.apply("scale-up-cmr.yaml")
        run.wait_for("both pods of on-spot run", run.pods_running("on-spot", 2), seconds=90)
        run.wait_for("all five pods of inflate run", run.pods_running("inflate", 5), seconds=60)
        run.wait_for("one NodeClaim of pool spot, initialized", lambda w: are_initialized(w, "spot", 1), seconds=30)
        run.wait_for(
            "every NodeClaim of pool default initialized",
            lambda w: are_initialized(w, "default", len(nodeclaims_of(w, "default"))),
            seconds=30,
        )
        run.print_objects()
        _check_spot_node(run)


def _check_spot_node(run: DemoRun) -> None:
    """What the author of spot-t3a.yaml asked of the instance and the node."""
    spot = next(i for i in run.instances() if i["tags"].get("karpenter.sh/nodepool") == "spot")
    expect(spot["instanceType"] == "t3a.large", f"a t3a.large was asked for, EC2 runs {spot['instanceType']}")
    expect(spot["capacityType"] == "spot", f"spot was asked for, EC2 runs {spot['capacityType']}")
    expect(spot["tags"].get("Name") == "spot-node", f"tag Name=spot-node was asked for: {spot['tags']}")
    options = spot["metadataOptions"]
    expect(options.get("HttpTokens") == "optional", f"httpTokens optional was asked for: {options}")
    expect(int(options.get("HttpPutResponseHopLimit", 0)) == 2, f"hop limit 2 was asked for: {options}")
    sizes = [d.get("Ebs", d).get("VolumeSize") for d in spot["blockDevices"]]
    expect(100 in [int(s) for s in sizes if s], f"a root volume of 100 GiB was asked for: {spot['blockDevices']}")
    node = next(n for n in run.timeline.objects_of("nodes") if n["spec"].get("providerID", "").endswith(spot["id"]))
    expect(node["metadata"]["labels"].get("node-group-type") == "spot", "label node-group-type=spot is missing")
    taints = [(t["key"], t.get("value"), t["effect"]) for t in node["spec"].get("taints") or ()]
    expect(("spot", "only", "NoSchedule") in taints, f"taint spot=only:NoSchedule is missing: {taints}")
    run.printer.say("seen: spot t3a.large, 100Gi, IMDS optional with hop limit 2, label and taint as asked")


def spot_interruption(run: DemoRun) -> None:
    with run.section("a spot interruption: replacement first, then drain, then gone") as started:
        doomed = next(i for i in run.instances() if i["tags"].get("karpenter.sh/nodepool") == "spot")
        claim = next(c for c in nodeclaims_of(run.timeline, "spot"))
        run.stack.control("POST", "/_local/interrupt", {"instanceId": doomed["id"]})
        run.printer.say(f"EC2 warns that {doomed['id']} will be taken back in two minutes")
        name = claim["metadata"]["name"]
        run.wait_for(f"nodeclaim {name} gone", lambda w: bool(_of(w, started, "gone", name)), seconds=130)
        run.wait_for("both pods of on-spot run again", run.pods_running("on-spot", 2), seconds=60)
        fleet = run.timeline.since(started, "aws", "CreateFleet")
        evicted = [e for e in run.timeline.since(started, "pods", "leaving") if "on-spot" in e.subject]
        expect(bool(fleet), "no CreateFleet after the warning")
        expect(bool(evicted), "no pod was evicted")
        expect(fleet[0].at < evicted[0].at, "a pod was evicted before the replacement was asked for")
        run.printer.say(f"seen: CreateFleet {evicted[0].at - fleet[0].at:.1f} s before the first eviction")


def _of(timeline: Timeline, at: float, what: str, subject: str) -> list[object]:
    return [e for e in timeline.since(at, event=what) if e.subject == subject]


def fewer_replicas(run: DemoRun) -> None:
    with run.section("inflate scaled to one replica: a smaller node first, then taint, drain, gone"):
        before = {claim["metadata"]["name"] for claim in nodeclaims_of(run.timeline, "default")}
        sizes = sorted(
            i["instanceType"] for i in run.instances() if i["tags"].get("karpenter.sh/nodepool") == "default"
        )
        run.stack.kubectl("scale", "deployment", "inflate", "--replicas=1")
        run.wait_for("one pod of inflate runs", run.pods_running("inflate", 1), seconds=60)
        scaled = time.time()
        # consolidateAfter: 1m, then the next look within a minute, the second one after 15 s, a new node, the drain.
        run.wait_for("another NodeClaim alone in pool default", lambda w: _replaced(w, before), seconds=240)
        run.wait_for("one pod of inflate runs", run.pods_running("inflate", 1), seconds=60)
        fleet = run.timeline.since(scaled, "aws", "CreateFleet")
        evicted = [e for e in run.timeline.since(scaled, "pods", "leaving") if "inflate" in e.subject]
        expect(bool(fleet) and bool(evicted), "no CreateFleet, or no eviction, since the Deployment was scaled")
        expect(fleet[0].at < evicted[0].at, "a pod was evicted before the smaller node was asked for")
        after = [i["instanceType"] for i in run.instances() if i["tags"].get("karpenter.sh/nodepool") == "default"]
        approved = next(e.text for e in run.timeline.since(scaled, "events") if "saves $" in e.text)
        run.printer.say(f"{', '.join(sizes)} became {', '.join(after)}: {approved}")


def _replaced(timeline: Timeline, before: set[str]) -> bool:
    now = {claim["metadata"]["name"] for claim in nodeclaims_of(timeline, "default")}
    return bool(now) and now.isdisjoint(before) and _all_initialized(timeline)


def generation_six(run: DemoRun) -> None:
    with run.section("scale-up-cmr.yaml deleted, basic-gen6.yaml"):
        run.delete("scale-up-cmr.yaml")
        run.wait_for("no NodeClaim of pool default", lambda w: not nodeclaims_of(w, "default"), seconds=60)
        run.apply("basic-gen6.yaml")
        run.deploy_inflate(5, {"eks-team": "my-team"})
        run.wait_for("all five pods of inflate run", run.pods_running("inflate", 5), seconds=90)
        run.wait_for("NodeClaims of pool default initialized", _all_initialized, seconds=30)
        run.print_objects()
        ours = [i for i in run.instances() if i["tags"].get("karpenter.sh/nodepool") == "default"]
        generations = {i["instanceType"]: _generation(i["instanceType"]) for i in ours}
        expect(all(g > 5 for g in generations.values()), f"a generation above 5 was asked for: {generations}")
        expect(all(i["tags"].get("intent") == "apps" for i in ours), "instance tag intent=apps is missing")


def _all_initialized(timeline: Timeline) -> bool:
    return bool(nodeclaims_of(timeline, "default")) and are_initialized(
        timeline, "default", len(nodeclaims_of(timeline, "default"))
    )


def _generation(instance_type: str) -> int:
    return int(next(letter for letter in instance_type if letter.isdigit()))


def graviton(run: DemoRun) -> None:
    with run.section("basic-gen6.yaml deleted, t4g-seoul.yaml"):
        run.stack.kubectl("delete", "deployment", "inflate")
        run.delete("basic-gen6.yaml")
        run.wait_for("no NodeClaim of pool default", lambda w: not nodeclaims_of(w, "default"), seconds=60)
        refused = run.apply("t4g-seoul.yaml", check=False)
        expect(refused.returncode != 0 and "spec.limit" in refused.stderr, "kubectl apply took spec.limit")
        run.printer.say(f"kubectl apply refuses it: {refused.stderr.strip().splitlines()[-1]}")
        run.apply("t4g-seoul.yaml", "--validate=warn")
        run.deploy_inflate(5, {"kubernetes.io/arch": "arm64"})
        run.wait_for("all five pods of inflate run", run.pods_running("inflate", 5), seconds=90)
        run.wait_for("NodeClaims of pool default initialized", _all_initialized, seconds=30)
        run.wait_for("an event names the unknown field", lambda w: "did you mean limits" in _events(w), seconds=30)
        ours = [i for i in run.instances() if i["tags"].get("karpenter.sh/nodepool") == "default"]
        expect(
            all(i["instanceType"].startswith("t4g.") and i["zone"] == "ap-northeast-2a" for i in ours),
            f"t4g in ap-northeast-2a was asked for: {[(i['instanceType'], i['zone']) for i in ours]}",
        )
        run.print_objects()


def _events(timeline: Timeline) -> str:
    return "\n".join(e.text for e in timeline.since(0, "events"))


def zero_and_back(run: DemoRun) -> None:
    with run.section("scale to zero, held, and back"):
        # Whoever tells that pods left moved with the nodes of scale-up-cmr.yaml.
        run.wait_for("the forwarder runs", _forwarder_is_ready, seconds=90)
        scaled = time.time()
        run.stack.kubectl("scale", "deployment", "inflate", "--replicas=0")
        run.delete("spot-t3a.yaml")
        run.wait_for("no instance", lambda w: not run.instances(), seconds=150)
        _say_how_long_empty(run, scaled)
        run.wait_for("forwarder and CoreDNS pending", _followers_pending, seconds=60)
        since = time.time()
        run.printer.say(f"holding zero nodes for {ZERO_NODES_SECONDS} s")
        held = not run.timeline.wait_until(
            lambda w: bool(w.since(since, "aws", "CreateFleet")), seconds=ZERO_NODES_SECONDS
        )
        expect(held, "a node was launched while only followers were pending")
        expect(not run.instances(), "an instance runs at zero")
        run.printer.say(f"seen: zero nodes for {ZERO_NODES_SECONDS} s and no launch")
        run.stack.kubectl("scale", "deployment", "inflate", "--replicas=5")
        run.wait_for("all five pods of inflate run", run.pods_running("inflate", 5), seconds=90)


def _forwarder_is_ready(timeline: Timeline) -> bool:
    pods = [p for p in timeline.objects_of("pods") if p["metadata"]["name"].startswith("spotwright-forwarder")]
    conditions = [c for p in pods for c in p.get("status", {}).get("conditions") or ()]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _say_how_long_empty(run: DemoRun, scaled: float) -> None:
    """consolidateAfter of basic-gen6.yaml is 30 s, and what is proposed is read again after 15 s."""
    left = [e.at for e in run.timeline.since(scaled, "pods", "leaving") if "inflate" in e.subject]
    terminated = [e.at for e in run.timeline.since(max(left), "aws", "TerminateInstances")]
    expect(bool(terminated), "no TerminateInstances since the last pod left")
    run.printer.say(f"seen: TerminateInstances {terminated[-1] - max(left):.1f} s after the last pod left")


def _followers_pending(timeline: Timeline) -> bool:
    pending = [p for p in timeline.objects_of("pods") if p.get("status", {}).get("phase") == "Pending"]
    names = " ".join(p["metadata"]["name"] for p in pending)
    return "coredns" in names and "spotwright-forwarder" in names


def spot_to_spot(run: DemoRun) -> None:
    with run.section("t4g-seoul.yaml deleted, spot-to-spot.yaml: five pods, then one on one node"):
        run.stack.kubectl("delete", "deployment", "inflate")
        run.delete("t4g-seoul.yaml")
        run.wait_for("no NodeClaim of pool default", lambda w: not nodeclaims_of(w, "default"), seconds=60)
        run.apply("spot-to-spot.yaml")
        run.deploy_inflate(1, {})
        run.wait_for("one pod of inflate runs", run.pods_running("inflate", 1), seconds=90)
        run.stack.kubectl("scale", "deployment", "inflate", "--replicas=5")
        run.wait_for("all five pods of inflate run", run.pods_running("inflate", 5), seconds=90)
        run.wait_for("NodeClaims of pool default initialized", _all_initialized, seconds=30)
        grown = len(nodeclaims_of(run.timeline, "default"))
        expect(grown > 1, "five pods run on one node: nothing is left to consolidate")
        run.stack.kubectl("scale", "deployment", "inflate", "--replicas=1")
        run.wait_for("one node of pool default", lambda w: are_initialized(w, "default", 1), seconds=240)
        run.wait_for("one pod of inflate runs", run.pods_running("inflate", 1), seconds=60)
        ours = [i for i in run.instances() if i["tags"].get("karpenter.sh/nodepool") == "default"]
        expect(all(i["capacityType"] == "spot" for i in ours), f"spot was asked for, EC2 runs {ours}")
        run.printer.say(f"{grown} nodes became {', '.join(i['instanceType'] for i in ours)}")
        _expect_no_cheaper_move(run)


def _expect_no_cheaper_move(run: DemoRun) -> None:
    done = _spotwright(run, "plan", "--consolidate")
    run.printer.block(done.stdout + done.stderr)
    expect(done.returncode == 0, f"spotwright plan --consolidate ended with {done.returncode}")
    expect("No node would go." in done.stdout, "spotwright plan --consolidate has a move left")


def nothing_left(run: DemoRun) -> None:
    with run.section("spotwright uninstall --drain, cdk destroy"):
        done = _spotwright(run, "uninstall", "--drain", "--cluster", run.stack.cluster)
        run.printer.block(done.stdout + done.stderr)
        expect(done.returncode == 0, f"spotwright uninstall ended with {done.returncode}")
        expect(not run.instances(), "instances are left after uninstall --drain")
        run.delete("spot-to-spot.yaml")
        run.deployment.destroy()
        left = _left_in_aws(run)
        expect(not left, f"left in AWS: {left}")
        expect(not run.deployment.outputs(), "the stack is still there after cdk destroy")
        run.printer.say(
            "nothing left: no instance, no launch template, no instance profile, no queue, no table, no stack"
        )


def _spotwright(run: DemoRun, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / ".venv/bin/spotwright"), *arguments],
        env=run.stack.environment() | {"SPOTWRIGHT_STACK": run.deployment.stack_name, "PYTHONFAULTHANDLER": "1"},
        capture_output=True, text=True, timeout=PATIENCE * 180, check=False,
    )  # fmt: skip


def _left_in_aws(run: DemoRun) -> list[str]:
    """Names of what Spotwright and its stack make in an account and must take away again."""
    account, endpoint = administrator_session(run.stack), run.stack.aws_endpoint
    ec2, iam = account.client("ec2", endpoint_url=endpoint), account.client("iam", endpoint_url=endpoint)
    sqs, dynamodb = account.client("sqs", endpoint_url=endpoint), account.client("dynamodb", endpoint_url=endpoint)
    profiles = iam.list_instance_profiles()["InstanceProfiles"]
    return [
        *(
            launch_template["LaunchTemplateName"]
            for launch_template in ec2.describe_launch_templates()["LaunchTemplates"]
        ),
        *(profile["InstanceProfileName"] for profile in profiles if profile["Path"].startswith("/karpenter/")),
        *sqs.list_queues().get("QueueUrls", ()),
        *dynamodb.list_tables()["TableNames"],
    ]


STEPS = (
    spot_and_on_demand,
    spot_interruption,
    fewer_replicas,
    generation_six,
    zero_and_back,
    graviton,
    spot_to_spot,
    nothing_left,
)
