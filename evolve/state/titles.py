"""When two ideas are one."""

import re


def folded(title: str) -> str:
    """A title without case and punctuation, so that "Larger tiles." and "larger-tiles" are one."""
    return " ".join(re.findall(r"\w+", title.lower()))
