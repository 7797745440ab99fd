"""The directory for what this machine can measure or fetch again."""

import os
from pathlib import Path

#: Environment variable that names the directory.
VARIABLE = "KBEVOLVE_CACHE"


def default_directory() -> Path:
    """``$KBEVOLVE_CACHE``, else ``kbevolve`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    # The specification of XDG_CACHE_HOME tells programs to ignore a relative path.
    base = Path(home) if home and Path(home).is_absolute() else Path("~/.cache").expanduser()
    return base / "kbevolve"
