"""Tells the judge when a compiler runs, so that compiling has its own time limit, and remembers what it said."""

import functools
from collections.abc import Callable
from typing import Any

from torch.utils import cpp_extension

#: Exceptions of Triton that mean "does not compile", by class name (Triton may not be installed).
_COMPILER_ERRORS = {"CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError"}


class BuildWatch:
    """Wraps torch's extension builders; `announce` is called with "building" before and "loading" after."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._failures: list[BaseException] = []
        for name in ("load", "load_inline"):
            setattr(cpp_extension, name, self._watched(getattr(cpp_extension, name)))

    def _watched(self, build: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(build)
        def watched(*arguments: Any, **keywords: Any) -> Any:
            self._announce("building")
            try:
                return build(*arguments, **keywords)
            except BaseException as error:
                self._failures.append(error)
                raise
            finally:
                self._announce("loading")

        return watched

    def caused(self, error: BaseException) -> bool:
        """Whether `error` comes from a compiler."""
        link: BaseException | None = error
        while link is not None:
            if type(link).__name__ in _COMPILER_ERRORS or any(link is failure for failure in self._failures):
                return True
            link = link.__cause__ or link.__context__
        return False
