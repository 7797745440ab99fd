"""The wire between judge and worker: JSON objects, each after its length in four bytes; file descriptors ride along."""

import json
import socket
from collections.abc import Sequence
from typing import Any

#: Bytes of the length before each object (big-endian, unsigned).
HEADER_BYTES = 4
#: Largest object in bytes. Sources and compiler logs are far smaller; a longer one is refused unread.
LARGEST = 8 << 20
#: File descriptors that may ride along with one object.
MOST_DESCRIPTORS = 4

Message = dict[str, Any]


def frame(message: Message) -> bytes:
    """The message as bytes, header included.

    Raises:
        ValueError: it is larger than `LARGEST`.
    """
    body = json.dumps(message).encode()
    if len(body) > LARGEST:
        raise ValueError(f"a message of {len(body)} bytes; at most {LARGEST} fit")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class Channel:
    """Blocking messages over one end of a socket pair (the worker's end)."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one object, and file descriptors with it."""
        data = frame(message)
        if descriptors:
            # Descriptors travel with the first bytes; the rest of a large message follows plainly.
            sent = socket.send_fds(self._connection, [data], list(descriptors))
            data = data[sent:]
        self._connection.sendall(data)

    def receive(self) -> tuple[Message, list[int]]:
        """The next object and the descriptors that came with it.

        Raises:
            EOFError: the other side hung up.
        """
        header, descriptors, _, _ = socket.recv_fds(self._connection, HEADER_BYTES, MOST_DESCRIPTORS)
        header += self._exactly(HEADER_BYTES - len(header)) if header else b""
        if not header:
            raise EOFError("the judge hung up")
        message: Message = json.loads(self._exactly(int.from_bytes(header, "big")))
        return message, descriptors

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._connection.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise EOFError("the judge hung up in the middle of a message")
            parts += part
        return bytes(parts)
