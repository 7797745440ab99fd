"""Results as lines of JSON in a file that grows: what was done stays when the time is over."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a last one that was cut short is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append(path: Path, facts: Mapping[str, Any]) -> None:
    """One more line, on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell():
            # Stopped in the middle of a line: what is appended must not become its end.
            file.seek(-1, os.SEEK_END)
            file.write(b"" if file.read(1) == b"\n" else b"\n")
        file.write(f"{json.dumps(facts)}\n".encode())
        file.flush()
