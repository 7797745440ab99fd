"""What names say about the kernel that mentions them; the tables are in `names.yaml`."""

import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

_TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
#: Every tag and what it says of a kernel. `docs/tags.md` shows the same table to users.
TAGS: dict[str, str] = _TABLES["tags"]
#: Rules that are refused whatever the policy, the gravest first, and what to do instead.
REFUSALS: dict[str, str] = _TABLES["refusals"]
#: Modules whose names a kernel may not change.
PROTECTED = frozenset(sys.stdlib_module_names) | {"torch", "triton", "numpy", "kbevolve", "__main__"}
#: Files through which a process's memory or surroundings are reached.
PROCESS_FILES = re.compile(
    r"/proc/[^/]*/?(self|thread-self|\d+|%d|%s| |\{)?[^/]*/(task/[^/]+/)?(mem|maps|environ|fd|syscall|stack|cmdline)\b"
)


def words(text: str) -> frozenset[str]:
    """The blank-separated words of a text."""
    return frozenset(text.split())


def table(name: str) -> frozenset[str]:
    """The names of a table."""
    return words(_TABLES[name])


def pattern(names: str, ending: str = "") -> re.Pattern[str]:
    """A pattern of any of these blank-separated names; a dot is a dot."""
    return re.compile(f"(?:{'|'.join(names.split())})".replace(".", r"\.") + ending)


#: What makes a library or a function out of the kernel's own code.
BUILDERS = table("builders")
#: Modules that a kernel is expected to import.
EXPECTED_MODULES = frozenset(sys.stdlib_module_names) | table("expected_modules")
PATTERNS = {name: pattern(names) for name, names in _TABLES["patterns"].items()}
#: Language -> tag, whether it is a refusal, and the pattern of the names that give it.
_RULES = {
    language: [
        (tag, kind == "refused", pattern(names, ending))
        for kind in ("tagged", "refused")
        for tag, names in _TABLES[language][kind].items()
    ]
    for language, ending in (("python", r"(\.|$)"), ("cpp", "$"), ("headers", ""))
}


@lru_cache(maxsize=8192)
def rules_of(name: str, language: Literal["python", "cpp", "headers"] = "python") -> tuple[tuple[str, bool], ...]:
    """The tags of a name, each with whether it is a refusal.

    A dotted name of Python has also the tags of what it lies in; a name of C++ is qualified, with its aliases undone.
    """
    return tuple((tag, refused) for tag, refused, names in _RULES[language] if names.match(name))
