"""The lint reads a kernel's Python and the C++ in its strings without running either: tags, and a few refusals.

`lint` gives a `Finding`; `TAGS` explains every tag. Python is read by what its expressions stand for (`meaning`), C++
as tokens after its macros (`preprocessor`); a comment, a doc string or a message is never taken for code.
"""

from kbevolve.evaluators.lint.finding import Finding, lint
from kbevolve.evaluators.lint.tags import REFUSALS, TAGS

__all__ = ["REFUSALS", "TAGS", "Finding", "lint"]
