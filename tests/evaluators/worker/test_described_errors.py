"""What a worker reports of an exception."""

from collections.abc import Callable

from kbevolve.evaluators.feedback.failures import failure_of
from kbevolve.evaluators.worker.candidate import describe_error


class CompilationError(Exception):
    """As Triton's: of a function that is called, it shows the place of the call and no reason."""


def nested() -> None:
    try:
        try:
            raise CompilationError("at 9:4:\n    tl.debug_barrier()\n    ^\nNameError('tl is not defined')")
        except CompilationError as inner:
            raise CompilationError("at 12:4:\ndef split_gemm(x):\n" + 200 * "    x = x + 1\n" + "    ^") from inner
    except CompilationError as inner:
        raise CompilationError("at 3:1:\ndef outer(x):\n    ^") from inner


def in_a_handler() -> None:
    try:
        import kbevolve.absent  # noqa: F401  # type: ignore[import-not-found]
    except ImportError:
        raise RuntimeError("no fast path")  # noqa: B904


def on_purpose() -> None:
    try:
        in_a_handler()
    except RuntimeError:
        raise ValueError("wrong shape") from None


def endless() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def described(raising: Callable[[], None]) -> str:
    try:
        raising()
    except (CompilationError, RuntimeError, ValueError) as error:
        return str(describe_error(error)["text"])
    raise AssertionError("it raised nothing")


def test_the_first_cause_ends_the_text() -> None:
    reason = "at 9:4:\n    tl.debug_barrier()\n    ^\nNameError('tl is not defined')"
    assert described(nested).endswith(f"caused by CompilationError: {reason}")
    text = described(in_a_handler)
    assert text == "no fast path\ncaused by ModuleNotFoundError: No module named 'kbevolve.absent'"
    assert described(on_purpose) == "wrong shape"
    assert described(endless).startswith("first")


def test_a_message_shows_the_reason_of_a_nested_compilers_error() -> None:
    reply = {"ok": False, "stage": "build", "type": "CompilationError", "text": described(nested)}
    assert "NameError('tl is not defined')" in failure_of(reply)[1]
