"""Which objects have changed since the body with all objects of the cluster state."""


class ChangeLog:
    """Kind and uid of each object that changed since the present base; ``begin`` … ``commit`` make another base.

    Until then changes count for both.
    """

    def __init__(self) -> None:
        self.number = 0
        self._since_base: set[tuple[str, str]] = set()
        self._since_next: set[tuple[str, str]] | None = None

    def add(self, kind: str, uid: str) -> None:
        """``number`` counts all changes."""
        self.number += 1
        self._since_base.add((kind, uid))
        if self._since_next is not None:
            self._since_next.add((kind, uid))

    def since_base(self) -> frozenset[tuple[str, str]]:
        return frozenset(self._since_base)

    def begin(self) -> None:
        """The objects as they are now may become the base."""
        self._since_next = set()

    def commit(self) -> None:
        """What the objects were at ``begin`` is the base now."""
        self._since_base, self._since_next = self._since_next or set(), None

    def abandon(self) -> None:
        """The base stays."""
        self._since_next = None
