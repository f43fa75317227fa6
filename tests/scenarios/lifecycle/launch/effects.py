"""What launches and nominations left behind."""

from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import NominationRow


def rows(world: World) -> list[NominationRow]:
    return [row for row in world.state.rows.values() if isinstance(row, NominationRow)]


def calls(world: World, action: str) -> list[str]:
    return [effect.subject for effect in world.effects.log if effect.action == action]


def nominated(world: World) -> list[str]:
    return [pod.key for pod in world.cluster.all("pods") if pod.nominated_node_name]
