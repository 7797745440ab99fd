"""What was seen in one kernel."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kbevolve.evaluators.lint.tables import REFUSALS, TAGS


@dataclass(slots=True)
class Marks:
    """What was seen in one kernel so far; the rules add to it."""

    tags: set[str] = field(default_factory=set)
    #: Keys of `REFUSALS`.
    refused: set[str] = field(default_factory=set)
    #: Names of library operations as a reader would recognise them, in the order seen.
    heavy: dict[str, None] = field(default_factory=dict)
    light: dict[str, None] = field(default_factory=dict)
    #: Whether any code is the kernel's own: Triton, C++, CUDA, or a call of a builder.
    own_kernel: bool = False
    #: Whether it loads a shared library.
    loads_library: bool = False
    #: Whether it imports files by their place, and whether it writes files whose text could not be read here.
    imports_files: bool = False
    writes_unknown: bool = False
    #: Whether it writes bytes that may be a library of machine code.
    writes_bytes: bool = False
    #: Whether a loaded library is asked for a function by a computed name.
    asks_unknown: bool = False

    def tag(self, name: str) -> None:
        """Note a tag that has honest uses."""
        assert name in TAGS, name
        self.tags.add(name)

    def refuse(self, name: str) -> None:
        """Note what has no honest use; the class is a tag as well."""
        assert name in REFUSALS, name
        self.tags.add(name)
        self.refused.add(name)

    def add(self, rules: Iterable[tuple[str, bool]]) -> None:
        """Note tags, each with whether it is a refusal (`tables.rules_of`)."""
        for tag, refused in rules:
            (self.refuse if refused else self.tag)(tag)

    def operation(self, kind: str, name: str) -> None:
        """Note a library operation: `kind` is "heavy" or "light"; anything else is no computation."""
        if kind in {"heavy", "light"}:
            self.tags.add(f"library-{kind}")
            (self.heavy if kind == "heavy" else self.light)[name] = None
