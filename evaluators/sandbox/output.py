"""The last words of a worker: what it printed, and what ended it."""

import signal

#: Bytes kept of the beginning and of the end of what a worker prints.
_KEPT_OUTPUT = 16 << 10


class CapturedOutput:
    """The beginning and the end of a stream of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """More of the stream."""
        room = _KEPT_OUTPUT - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        self._dropped += max(0, len(self._tail) - _KEPT_OUTPUT)
        del self._tail[:-_KEPT_OUTPUT]

    @property
    def text(self) -> str:
        """What was kept."""
        gap = f"\n[… {self._dropped} bytes …]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")


def signal_words(number: int) -> str:
    """The signal that ended a process, and what it usually means."""
    meanings = {
        signal.SIGSEGV: "an invalid memory access",
        signal.SIGBUS: "an invalid memory access",
        signal.SIGABRT: "abort(), often a failed assertion or heap corruption",
        signal.SIGFPE: "an arithmetic fault such as integer division by zero",
        signal.SIGILL: "an instruction that this processor lacks",
        signal.SIGKILL: "being killed, most likely because memory ran out",
    }
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{known.name} ({meanings[known]})" if known in meanings else known.name
