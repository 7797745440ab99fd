"""Files that are written whole or not at all: half a kernel would look like a whole one."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kbevolve.configs.errors import ArchiveError


@contextmanager
def whole_file(output: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes its name, or replaces the one that has it, when the block ends without an error.

    Raises:
        ArchiveError: it cannot be written.
    """
    draft = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            yield file
        draft.replace(output)
    except OSError as error:
        raise ArchiveError(f"{output}: {error.strerror}; name a file in a directory that you may write to") from None
    finally:
        draft.unlink(missing_ok=True)


def write_file(output: Path, text: str) -> None:
    """Write a text file; lines end in a line feed everywhere."""
    with whole_file(output) as file:
        file.write(text.encode())
