"""Where commands print: rich's console, which keeps to NO_COLOR (https://no-color.org) in full."""

import os
from typing import Any

import rich.console


class Console(rich.console.Console):
    """Rich takes only colours away for NO_COLOR, and dims and emboldens still; here nothing is left of a style."""

    def __init__(self, **options: Any) -> None:
        plain = {"color_system": None} if os.environ.get("NO_COLOR") else {}
        super().__init__(**plain | options)
