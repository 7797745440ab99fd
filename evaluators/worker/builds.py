"""Hands what is to be compiled to the judge, and tells it when a compiler runs here after all.

torch's `load` and `load_inline` do everything as ever (names, versions, bindings, loading) but for the one step that
compiles: that is ordered from the judge, whose builders keep what they built. Whoever compiles, this process leaves
the device before and comes back to it after: "building" and "loading" are announced, and each is answered before
anything goes on.
"""

import contextlib
import functools
import inspect
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from kbevolve.evaluators.worker.build_request import order_of, variables
from kbevolve.evaluators.worker.channel import Channel

#: Exceptions of Triton that mean "does not compile", by class name (Triton may not be installed).
_COMPILER_ERRORS = {"CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError"}
#: torch's step between "what is to be built is known" and "the library lies in its folder".
_STEP = "_write_ninja_file_and_build_library"


class BuildWatch:
    """Stands in for torch's compiling step and around Triton's."""

    def __init__(self, channel: Channel, synchronize: Callable[[], None]) -> None:
        """`synchronize` waits for the device: what is still running there must not go on while others use it."""
        self._channel = channel
        self._wait_for_device = synchronize
        self._failures: list[BaseException] = []
        self._variables = variables()
        # One conversation at a time. A build within a build (torch's within Triton's set-up) is part of the outer one.
        self._turn = threading.RLock()
        self._away = False
        whole = not hasattr(cpp_extension, _STEP)
        for name in ("load", "load_inline"):
            setattr(cpp_extension, name, self._watched(getattr(cpp_extension, name), whole=whole))
        if not whole:
            setattr(cpp_extension, _STEP, self._ordered(getattr(cpp_extension, _STEP)))

    def caused(self, error: BaseException) -> bool:
        """Whether `error` comes from a compiler."""
        link: BaseException | None = error
        while link is not None:
            if type(link).__name__ in _COMPILER_ERRORS or any(link is failure for failure in self._failures):
                return True
            link = link.__cause__ or link.__context__
        return False

    def watch_triton(self) -> None:
        """Announce Triton's compiling, which happens in the first call of a kernel, if Triton is there."""
        function = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
        if hasattr(function, "_do_compile"):
            self._surround(function)
            return
        knobs = getattr(sys.modules.get("triton.knobs"), "runtime", None)
        for place, before, after in (
            (knobs, "jit_cache_hook", "jit_post_compile_hook"),
            (function, "cache_hook", "compiled_hook"),
        ):
            if place is not None and hasattr(place, before) and hasattr(place, after):
                setattr(place, before, self._hook(self._leave))
                setattr(place, after, self._hook(self._come_back))
                return

    def settle(self) -> None:
        """Come back from a compile that ended in an error which nobody told us of."""
        self._come_back()

    # ---- who compiles ----------------------------------------------------------------------------------------------

    def _watched(self, build: Callable[..., Any], *, whole: bool) -> Callable[..., Any]:
        """`load` or `load_inline`, whose errors are remembered; `whole`: it compiles, and nobody else tells."""

        @functools.wraps(build)
        def watched(*arguments: Any, **keywords: Any) -> Any:
            try:
                with self.away() if whole else contextlib.nullcontext():
                    return build(*arguments, **keywords)
            except BaseException as error:
                self._failures.append(error)
                raise

        return watched

    def _ordered(self, compile_here: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(compile_here)

        @functools.wraps(compile_here)
        def ordered(*arguments: Any, **keywords: Any) -> None:
            asked = signature.bind(*arguments, **keywords).arguments
            with self._turn:
                if not self._deliver(asked):
                    with self.away():
                        compile_here(*arguments, **keywords)

        return ordered

    def _deliver(self, asked: dict[str, Any]) -> bool:
        """Order from the judge; False when it has to be compiled here.

        Raises:
            RuntimeError: it does not compile, in the words of torch's builder.
        """
        order = order_of(asked) if variables() == self._variables and not self._away else None
        if order is None:
            return False
        self._synchronize()
        self._channel.send({"phase": "building", "build": order})
        answer, descriptors = self._channel.receive()
        if "failed" in answer:
            raise RuntimeError(f"Error building extension '{asked['name']}': {answer['failed']}")
        if "built" not in answer:
            self._away = True  # the judge takes it that a compiler runs here from now on
            return False
        suffix = cpp_extension.EXEC_EXT if asked.get("is_standalone") else cpp_extension.LIB_EXT
        _save(descriptors[0], Path(asked["build_directory"]) / f"{asked['name']}{suffix}")
        return True

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Leave the device to others while something is done that does not need it."""
        with self._turn:
            self._leave()
            try:
                yield
            finally:
                self._come_back()

    # ---- leaving the device ----------------------------------------------------------------------------------------

    def _leave(self) -> None:
        with self._turn:
            if not self._away:
                self._synchronize()
                self._channel.send({"phase": "building"})
                self._channel.receive()
                self._away = True

    def _come_back(self) -> None:
        with self._turn:
            if self._away:
                self._away = False
                self._channel.send({"phase": "loading"})
                self._channel.receive()  # when the device is ours again

    def _synchronize(self) -> None:
        # A device that failed fails again in the next call, where it is no compiler's error.
        with contextlib.suppress(RuntimeError):
            self._wait_for_device()

    def _surround(self, function: Any) -> None:
        compile_here = function._do_compile

        @functools.wraps(compile_here)
        def surrounded(*arguments: Any, **keywords: Any) -> Any:
            with self.away():
                return compile_here(*arguments, **keywords)

        function._do_compile = surrounded

    def _hook(self, act: Callable[[], None]) -> Callable[..., bool]:
        def hook(*_: Any, **__: Any) -> bool:
            act()
            return False  # that it is not compiled yet, and Triton shall do so

        return hook


def _save(descriptor: int, path: Path) -> None:
    """Write what can be read from the descriptor, as a program or library of our own."""
    # A new file: what is mapped from an old one of this name must not change.
    path.unlink(missing_ok=True)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    with os.fdopen(descriptor, "rb") as built, os.fdopen(target, "wb") as file:
        shutil.copyfileobj(built, file)
