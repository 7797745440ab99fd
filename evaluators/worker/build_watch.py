"""Sends builds to the judge, and reports when a compiler runs in this process after all.

torch's `load` and `load_inline` work as usual (names, versions, bindings, loading) except for the step that compiles.
The worker requests that step from the judge, whose builders keep what they built. Before either of them compiles, this
process leaves the device, and returns to it afterwards: it reports "building" and "loading", and waits for an answer
to each.
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

from kbevolve.evaluators.worker.build_request import compiler_variables, request_of
from kbevolve.evaluators.worker.channel import Channel, Message
from kbevolve.evaluators.worker.triton_stages import replace_stages

#: Exceptions of Triton that mean "does not compile", by class name (Triton may not be installed).
_COMPILER_ERRORS = {"CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError"}
#: torch's function that compiles the prepared sources to a library in the build folder.
_STEP = "_write_ninja_file_and_build_library"


class BuildWatch:
    """Replaces torch's compiling step and Triton's."""

    def __init__(self, channel: Channel, synchronize: Callable[[], None]) -> None:
        """`synchronize` waits for the device: no work may continue there while other kernels use it."""
        self._channel = channel
        self._wait_for_device = synchronize
        self._failures: list[BaseException] = []
        self._variables = compiler_variables()
        # One build at a time. A build within a build (torch's within Triton's set-up) is part of the outer one.
        self._lock = threading.RLock()
        self._off_device = False
        # That answers the judge's requests.
        self._thread = threading.get_ident()
        step: Callable[..., Any] | None = getattr(cpp_extension, _STEP, None)
        for name in ("load", "load_inline"):
            build = getattr(cpp_extension, name)
            setattr(cpp_extension, name, self._watched(build if step else self.off_device()(build)))
        if step:
            setattr(cpp_extension, _STEP, self._requesting(step))

    def caused(self, error: BaseException) -> bool:
        """Whether a compiler caused this error."""
        link: BaseException | None = error
        while link is not None:
            if type(link).__name__ in _COMPILER_ERRORS or any(link is failure for failure in self._failures):
                return True
            link = link.__cause__ or link.__context__
        return False

    def watch_triton(self) -> None:
        """Let the judge compile Triton's kernels, which happens in their first call, if Triton is imported.

        With other versions of Triton than those of `triton_stages`, report that this process compiles.
        """
        if replace_stages(self._compiled_by_judge, self._apart):
            return
        function: Any = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
        if hasattr(function, "_do_compile"):
            function._do_compile = self.off_device()(function._do_compile)
        elif hasattr(function, "cache_hook") and hasattr(function, "compiled_hook"):  # Triton before 3.4
            function.cache_hook = lambda *_, **__: self._leave_device()
            function.compiled_hook = lambda *_, **__: self.return_to_device()

    # ---- torch -----------------------------------------------------------------------------------------------------

    def _watched(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """`load` or `load_inline` with its errors recorded."""

        @functools.wraps(build)
        def watched(*arguments: Any, **keywords: Any) -> Any:
            try:
                return build(*arguments, **keywords)
            except BaseException as error:
                self._failures.append(error)
                raise

        return watched

    def _requesting(self, compile_here: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(compile_here)

        @functools.wraps(compile_here)
        def requesting(*arguments: Any, **keywords: Any) -> None:
            build = signature.bind(*arguments, **keywords).arguments
            with self._lock:
                if not self._built_by_judge(build):
                    with self.off_device():
                        compile_here(*arguments, **keywords)

        return requesting

    def _built_by_judge(self, build: dict[str, Any]) -> bool:
        """Request a build from the judge; False when this process must compile.

        Raises:
            RuntimeError: it does not compile, with the text of torch's builder.
        """
        if self._off_device:  # within Triton's
            return False
        answer, descriptors = self._ask_judge(request_of(build, self._variables))
        if "failed" in answer:
            raise RuntimeError(f"Error building extension '{build['name']}': {answer['failed']}")
        if "built" not in answer:
            return False
        _save(descriptors[0], Path(build["build_directory"]) / f"{build['name']}{cpp_extension.LIB_EXT}")
        return True

    def _ask_judge(self, request: Message) -> tuple[Message, list[int]]:
        """What the judge answers; where it built nothing, and does not say why, it now expects a compiler here."""
        self._synchronize()
        self._channel.send({"phase": "building", "build": request})
        answer, descriptors = self._channel.receive()
        self._off_device = not answer.keys() & {"built", "failed"}
        return answer, descriptors

    # ---- Triton ----------------------------------------------------------------------------------------------------

    @property
    def _is_other_thread(self) -> bool:
        """Whether torch.compile compiles in threads, as its searches do: each compiles for itself, side by side."""
        return threading.get_ident() != self._thread

    def _compiled_by_judge(self, request: Message) -> bytes | None:
        if self._is_other_thread:
            return None
        with self._lock:
            if self._off_device:
                return None
            answer, descriptors = self._ask_judge(request)
            if "built" not in answer:  # what the judge cannot compile fails here as well, with Triton's own error
                return None
            with os.fdopen(descriptors[0], "rb") as built:
                return built.read()

    def _apart(self, compile_here: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with contextlib.nullcontext() if self._is_other_thread else self.off_device():
            return compile_here()

    # ---- the device ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def off_device(self) -> Iterator[None]:
        """Leave the device to other kernels during work that does not need it."""
        with self._lock:
            self._leave_device()
            try:
                yield
            finally:
                self.return_to_device()

    def _leave_device(self) -> None:
        with self._lock:
            if not self._off_device:
                self._synchronize()
                self._channel.send({"phase": "building"})
                self._channel.receive()
                self._off_device = True

    def return_to_device(self) -> None:
        """Wait for the device again. Call it after each request, too: Triton's hooks do not report failed compiles."""
        with self._lock:
            if self._off_device:
                self._off_device = False
                self._channel.send({"phase": "loading"})
                self._channel.receive()

    def _synchronize(self) -> None:
        # If the device failed, the next call fails again, and there it is not taken for a compiler's error.
        with contextlib.suppress(RuntimeError):
            self._wait_for_device()


def _save(descriptor: int, path: Path) -> None:
    """Write what the descriptor holds as a library of this process."""
    # A new file: the old one of this name may be mapped.
    path.unlink(missing_ok=True)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    with os.fdopen(descriptor, "rb") as built, os.fdopen(target, "wb") as file:
        shutil.copyfileobj(built, file)
