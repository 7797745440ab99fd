"""What each setting is, from its own definition: type, default, and the comment above it."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from kbevolve.configs.sections import Section
from kbevolve.configs.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFacts:
    """One setting."""

    #: Dotted: ``search.islands``.
    name: str
    #: ``integer 1 to 64``, ``fp32, tf32, fp16 or bf16``, ``text or null``.
    type: str
    #: As JSON has it.
    default: Any
    #: Its comment as one paragraph; the first sentence says what it is.
    meaning: str


def setting_facts() -> tuple[SettingFacts, ...]:
    """All settings, in the order of their definition."""
    schema = Settings.model_json_schema()
    return tuple(_facts(Settings, "", Settings().model_dump(mode="json"), schema, schema["$defs"]))


def sentence(meaning: str) -> str:
    """The first sentence of a meaning, or what precedes its semicolon, without the period."""
    return re.split(r";\s|(?<!e\.g)\.(?:\s|$)", meaning, maxsplit=1)[0]


def _facts(
    section: type[BaseModel], prefix: str, values: dict[str, Any], schema: dict[str, Any], kinds: dict[str, Any]
) -> Iterator[SettingFacts]:
    comments = _comments(section)
    for name, info in section.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            below = kinds[info.annotation.__name__]
            yield from _facts(info.annotation, f"{prefix}{name}.", values[name], below, kinds)
        else:
            kind = _type_words(schema["properties"][name])
            yield SettingFacts(name=f"{prefix}{name}", type=kind, default=values[name], meaning=comments[name])


def _comments(section: type[BaseModel]) -> dict[str, str]:
    """Field -> the ``#:`` lines above it."""
    found = re.findall(r"((?:^    #: .*\n)+)    (\w+):", inspect.getsource(section), re.MULTILINE)
    return {name: " ".join(re.findall(r"#: (.*)", lines)) for lines, name in found}


def _type_words(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if one := schema.get("anyOf"):
        return " or ".join(map(_type_words, one))
    if values := schema.get("enum"):
        *others, last = [f"`{value}`" for value in values if isinstance(value, str)]
        numbers = [value for value in values if not isinstance(value, str)]
        others, last = ([*others, last], f"{numbers[0]} to {numbers[-1]}") if numbers else (others, last)
        return f"{', '.join(others)} or {last}"
    if schema.get("type") == "array":
        return f"list of {_type_words(schema['items'])}"
    if "$ref" in schema:
        return "object"
    kind = {"string": "text", "boolean": "true or false"}.get(schema["type"], schema["type"])
    kind = "file" if schema.get("format") == "path" else kind
    low, high, above = schema.get("minimum"), schema.get("maximum"), schema.get("exclusiveMinimum")
    if low is not None and high is not None:
        return f"{kind} {low:g} to {high:g}"
    bounds = [f"{word} {bound:g}" for word, bound in (("≥", low), (">", above), ("≤", high)) if bound is not None]
    return " ".join([kind, ", ".join(bounds)]).strip()
