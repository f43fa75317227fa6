"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """``1 pod``, ``2 pods``, ``1,000 pods``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
