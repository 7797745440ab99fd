"""What somebody who waits for a run is told in lines: what is being judged."""

from collections.abc import Callable

from kbevolve.evolve.search.events import Event


class Hearing:
    """An `Observer` that says once of each kernel that it is being judged, and which kernels compete.

    Args:
        say: hears the lines.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Say what is new."""
        if event.contest:
            self._say(f"measuring {' and '.join(event.contest)} against each other …")
        for birth in event.judging:
            if birth.kernel is not None and birth.kernel not in self._said:
                self._said.add(birth.kernel)
                self._say(f"judging {birth.kernel}, {birth.operator.value} of {birth.id.partition('/')[2]} …")
