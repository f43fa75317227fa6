"""`spotwright orphans`: what is listed, what may go, and that saying it twice changes nothing."""

from datetime import timedelta

import pytest

from spotwright.cli import main
from spotwright.cli.commands import orphans
from spotwright.errors import Unavailable
from spotwright.lifecycle.orphans import ACKNOWLEDGED
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.simulation.world import World
from spotwright.workflows.sweep.full import orphans_of


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def gather(_: object) -> object:
        instances = made.ec2.instances_of_cluster()
        found = orphans_of(instances, made.state.launches(), made.claims(), now=made.clock.now())
        return made.ec2, len(instances), found

    monkeypatch.setattr(orphans, "gather", gather)
    return made


def add_orphans(world: World, count: int) -> list[str]:
    tags = {
        labels.cluster_tag(world.cluster.name): "owned", labels.NODEPOOL: "default",
        labels.CLUSTER_NAME_TAG: world.cluster.name,
    }  # fmt: skip
    launched = world.clock.now() - timedelta(hours=1)
    ids = [f"i-{number:017x}" for number in range(count)]
    for id in ids:
        world.ec2.instances[id] = Instance(id, "m5.large", "z", "spot", "running", launch_time=launched, tags=tags)
    return ids


def acknowledged(world: World) -> set[str]:
    return {id for id, one in world.ec2.instances.items() if one.tags.get(labels.ORPHAN_TAG) == ACKNOWLEDGED}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["orphans", "--cluster", "blue", *arguments]) == 0
    return capsys.readouterr().out


def test_without_orphans_that_is_said(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == "No instance of blue is an orphan: NodeClaims and launches name all 0 of them.\n"
    assert said(capsys, "--terminate-all") == "There are no orphans.\n"


def test_few_are_listed_and_go_by_themselves(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    ids = add_orphans(world, 2)
    lines = said(capsys).splitlines()
    assert lines[0] == "2 of 2 instances of blue: no NodeClaim and no launch has them."
    assert [line.split()[0] for line in lines[1:3]] == ids
    assert "m5.large  spot  z  running  NodePool default  launched " in lines[1]
    assert lines[3:] == ["2 instances will be terminated within ten minutes."]


def test_many_are_listed_with_what_to_do(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    add_orphans(world, 5)
    lines = said(capsys).splitlines()
    assert lines[6] == "5 instances will not: so many at once may be a mistake."
    assert "spotwright orphans --cluster blue --terminate ID" in lines[7]
    assert lines[8].endswith("aws ec2 delete-tags --resources ID --tags Key=karpenter.sh/nodepool")
    assert acknowledged(world) == set()


def test_those_that_are_named_may_go_and_twice_is_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = add_orphans(world, 5)
    assert said(capsys, "--terminate", first, second, first).splitlines() == [
        f"{first}: acknowledged",
        f"{second}: acknowledged",
        "2 instances may go: the next full sweep, within ten minutes, terminates what nothing uses then.",
    ]
    assert acknowledged(world) == {first, second}
    tagged = len(world.effects.select("ec2", "tag"))
    assert f"{first}: was acknowledged before" in said(capsys, "--terminate", first)
    assert len(world.effects.select("ec2", "tag")) == tagged
    assert f"{first}  m5.large  spot  z  running" in said(capsys)
    assert "acknowledged" in said(capsys).splitlines()[1]


def test_all_may_go_at_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    ids = add_orphans(world, 5)
    assert "5 instances may go" in said(capsys, "--terminate-all")
    assert acknowledged(world) == set(ids)


def test_what_is_no_orphan_is_refused_and_nothing_is_acknowledged(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = add_orphans(world, 5)
    assert main(["orphans", "--cluster", "blue", "--terminate", first, "i-other"]) == 2
    assert capsys.readouterr().err.startswith("spotwright orphans: i-other is no orphan of cluster blue: ")
    assert acknowledged(world) == set()


def test_an_answer_that_does_not_come_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gather(_: object) -> object:
        raise Unavailable("EC2 does not answer")

    monkeypatch.setattr(orphans, "gather", gather)
    assert main(["orphans", "--cluster", "blue"]) == 1
    assert capsys.readouterr().err == "spotwright orphans: EC2 does not answer\n"
