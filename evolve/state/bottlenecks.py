"""What an idea is against, as one of few classes: models use words of their own, and credit needs arms that recur."""

import re
from collections.abc import Mapping

MEMORY, ARITHMETIC, LATENCY, LAUNCHES, IDLE = "memory", "arithmetic", "latency", "launches", "idle processors"

#: Class -> words that show it. The first that fits is taken: "memory latency" is latency, and "shared memory" memory.
_WORDS: Mapping[str, re.Pattern[str]] = {
    LAUNCHES: re.compile(r"launch|overhead|host|dispatch", re.IGNORECASE),
    LATENCY: re.compile(r"latenc|dependen|stall|synchron|barrier|pipelin", re.IGNORECASE),
    IDLE: re.compile(r"idle|occupan|parallelism|utili[sz]|imbalance|tail|wave|processors|underus", re.IGNORECASE),
    MEMORY: re.compile(
        r"memor|bandwidth|traffic|dram|hbm|cache|bytes|\bloads?\b|\bstores?\b|bank|coalesc", re.IGNORECASE
    ),
    ARITHMETIC: re.compile(
        r"arith|compute|flop|\balu|\bfma|tensor|instruction|issue|function|\bsfu|math", re.IGNORECASE
    ),
}


def bottleneck_class(words: str) -> str:
    """``memory``, ``arithmetic``, ``latency``, ``launches`` or ``idle processors``; "" when the words show none."""
    return next((name for name, pattern in _WORDS.items() if pattern.search(words)), "")
