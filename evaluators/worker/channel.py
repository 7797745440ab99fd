"""The messages between judge and worker: JSON objects after their length in four bytes, with file descriptors."""

import json
import socket
from collections.abc import Sequence
from typing import Any

#: Bytes of the length before each object (big-endian, unsigned).
HEADER_BYTES = 4
#: Largest object in bytes. Sources and compiler logs are far smaller; a larger one is refused unread.
LARGEST = 8 << 20
#: Most file descriptors with one object.
MOST_DESCRIPTORS = 4

Message = dict[str, Any]


def frame(message: Message) -> bytes:
    """The message as bytes with its header; ValueError when it is larger than `LARGEST`."""
    body = json.dumps(message).encode()
    if len(body) > LARGEST:
        raise ValueError(f"a message of {len(body)} bytes; at most {LARGEST} fit")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class Channel:
    """Blocking messages over one end of a socket pair."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one object, and file descriptors with it."""
        data = frame(message)
        if descriptors:
            # Descriptors travel with the first bytes.
            data = data[socket.send_fds(self._connection, [data], list(descriptors)) :]
        self._connection.sendall(data)

    def receive(self) -> tuple[Message, list[int]]:
        """The next object and its descriptors; EOFError when the other side closed the connection."""
        header, descriptors, _, _ = socket.recv_fds(self._connection, HEADER_BYTES, MOST_DESCRIPTORS)
        if not header:
            raise EOFError("the judge hung up")
        header += self._exactly(HEADER_BYTES - len(header))
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
