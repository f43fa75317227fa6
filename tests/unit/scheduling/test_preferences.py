"""What pods would rather have: kept while it can be, and named where it was given up."""

from spotwright.model import labels
from spotwright.model.company import Company, Spread, Wish
from spotwright.model.requirements import Selector
from spotwright.model.taints import Taint
from tests.unit.scheduling.builders import planned, pod, pods, pool, zone_is

SOFT = Taint("slow", "PreferNoSchedule")


class TestPreferences:
    def test_a_soft_taint_is_avoided_while_there_is_another_pool(self) -> None:
        slow = pool("a-slow", taints=(SOFT,), weight=50)
        assert [one.node_pool for one in planned(pod(), pools=[slow, pool("z")]).new_nodes] == ["z"]
        assert [one.node_pool for one in planned(pod(), pools=[slow]).new_nodes] == ["a-slow"]

    def test_the_heaviest_preference_that_can_be_met_is_met(self) -> None:
        wishes = ((100, (zone_is("nowhere"),)), (50, (zone_is("z2"),)), (1, (zone_is("z1"),)))
        (made,) = planned(pod(node_preferences=wishes)).new_nodes
        assert made.zones == ("z2",)

    def test_the_first_alternative_that_works_is_taken(self) -> None:
        (made,) = planned(pod(node_affinity=((zone_is("nowhere"),), (zone_is("z3"),), (zone_is("z1"),)))).new_nodes
        assert made.zones == ("z3",)


class TestGivenUp:
    def test_wishes_that_were_not_met_are_named_with_their_pods(self) -> None:
        wish = (1, (Selector(labels.ARCH, "In", ("arm64",)),))
        (made,) = planned(*pods(2, node_preferences=(wish,))).new_nodes
        assert made.given_up == ("node preference kubernetes.io/arch In [arm64] (2 pods)",)

    def test_a_spread_that_gave_way_and_taints_that_were_suffered(self) -> None:
        web = (Selector("app", "In", ("web",)),)
        soft = Spread(labels.ZONE, 1, web, hard=False)
        away = Wish(5, Company(labels.HOSTNAME, web, ("default",)))
        waiting = pods(2, labels={"app": "web"}, spreads=(soft,), rather_apart=(away,))
        one_zone = [pool("default", zone_is("z1"), taints=(SOFT,))]
        (made,) = planned(*waiting, pools=one_zone).new_nodes
        assert made.given_up == (
            "ScheduleAnyway spread over zones (2 pods)",
            "keeping away from PreferNoSchedule taints (2 pods)",
            "preferred pod anti-affinity over hosts (2 pods)",
        )

    def test_a_wish_that_was_met_is_not_named(self) -> None:
        (made,) = planned(pod(node_preferences=((1, (zone_is("z2"),)),))).new_nodes
        assert (made.given_up, made.zones) == ((), ("z2",))
