"""A landscape some of whose configurations fail, made of one whose do not: searches meet failures in any real space."""

import json
from collections.abc import Mapping, Sequence

from kbevolve.configs.errors import UsageError, nearest
from kbevolve.evolve.simulation.measured import FORMAT, MeasuredLandscape


def failing(landscape: MeasuredLandscape, rules: Sequence[str]) -> str:
    """The landscape in which every configuration fails that meets a rule, such as "TILE=64,STAGES=3".

    Raises:
        UsageError: a rule is none, or names an unknown parameter or value.
    """
    wanted = [_parsed(rule, landscape) for rule in rules]
    values = []
    for program, result in landscape.results.items():
        own = landscape.values(program)
        fails = any(all(str(own[name]) == value for name, value in rule.items()) for rule in wanted)
        failure = landscape.failure(program)
        values.append((list(own.values()), f"WRONG: {' or '.join(rules)}" if fails or failure else result))
    text = {
        "format": FORMAT,
        "name": f"{landscape.name} fails at {' or '.join(rules)}",
        "about": landscape.about,
        "unit": "ms",
        "reference_ms": landscape.reference_ms,
        "niche": [list(landscape.parameters)[axis] for axis in landscape.axes],
        "parameters": list(landscape.parameters.items()),
        "values": values,
    }
    return json.dumps(text, separators=(",", ":")) + "\n"


def _parsed(rule: str, landscape: MeasuredLandscape) -> Mapping[str, str]:
    found = {}
    for part in rule.split(","):
        name, equals, value = part.partition("=")
        known = [str(one) for one in landscape.parameters.get(name, ())]
        if not equals or not known:
            raise UsageError(f"{part!r} is no NAME=VALUE of a parameter. {nearest(name, landscape.parameters)}")
        if value not in known:
            raise UsageError(f"{name} has no value {value}; its values are {', '.join(known)}")
        found[name] = value
    return found
