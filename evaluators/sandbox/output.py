"""What a worker printed, and the signal that ended it."""

import signal

#: Bytes kept of the beginning and of the end of what a worker prints.
_KEPT = 16 << 10

_MEANINGS = {
    signal.SIGSEGV: "an invalid memory access",
    signal.SIGBUS: "an invalid memory access",
    signal.SIGABRT: "abort(), often a failed assertion or heap corruption",
    signal.SIGFPE: "an arithmetic fault such as integer division by zero",
    signal.SIGILL: "an instruction that this processor lacks",
    signal.SIGKILL: "being killed, most likely because memory ran out",
}


class CapturedOutput:
    """The beginning and the end of a stream of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Append to the stream."""
        room = _KEPT - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        self._dropped += max(0, len(self._tail) - _KEPT)
        del self._tail[:-_KEPT]

    @property
    def text(self) -> str:
        """What was kept."""
        gap = f"\n[… {self._dropped} bytes …]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")


def describe_signal(number: int) -> str:
    """The name of a signal that ended a process, and what it usually means."""
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{known.name} ({_MEANINGS[known]})" if known in _MEANINGS else known.name
