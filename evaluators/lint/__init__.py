"""The lint reads a kernel's Python and the C++ in its strings without running either: tags, and a few refusals.

`lint` gives a `LintReport`; `TAGS` explains every tag. It is a filter, not the defence.
Python is read by what its names mean (`python_names`), C++ by the names in its text (`cpp`).
"""

from kbevolve.evaluators.lint.report import LintReport, lint
from kbevolve.evaluators.lint.tables import REFUSALS, TAGS

__all__ = ["REFUSALS", "TAGS", "LintReport", "lint"]
