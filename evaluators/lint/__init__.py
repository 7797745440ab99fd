"""The lint reads a kernel's Python and the C++ in its strings without running either: tags, and a few refusals.

`lint` gives a `LintReport`; `TAGS` explains every tag. It is a filter, not the defence.
Python is read by what its names mean (`python_names`), C++ as tokens after its macros (`cpp_tokens`).
"""

from kbevolve.evaluators.lint.report import LintReport, lint
from kbevolve.evaluators.lint.tags import REFUSALS, TAGS

__all__ = ["REFUSALS", "TAGS", "LintReport", "lint"]
