"""A line at the end of a file, whole or not at all."""

import contextlib
import os


def append_whole(file: int, line: str, *, wait: bool = False) -> None:
    """Append to a file that was opened with O_APPEND; what a full disk took of the line is taken off again.

    Args:
        file: its descriptor; nobody else appends at the same time.
        line: in ASCII, with its line end.
        wait: until the disk has it, and not only the operating system.

    Raises:
        OSError: the disk does not take it.
    """
    before = os.fstat(file).st_size
    text = line.encode("ascii")
    try:
        while text:  # a disk that is nearly full takes a part
            text = text[os.write(file, text) :]
        if wait:
            os.fsync(file)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, before)
        raise
