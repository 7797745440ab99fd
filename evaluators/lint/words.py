"""Sets of names written as one text, as the lint's tables are."""


def words(text: str) -> frozenset[str]:
    """The blank-separated words of a text."""
    return frozenset(text.split())
