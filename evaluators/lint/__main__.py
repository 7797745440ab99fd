"""The program of `LintProcess`: reads requests, one JSON list a line, and answers each with a line."""

import json
import resource
import sys
import time
from pathlib import Path

from kbevolve.evaluators.lint.process import CPU_SECONDS, MEMORY_BYTES
from kbevolve.evaluators.lint.report import lint, not_python

#: Megabytes beyond which what earlier files left in caches could be the next file's fault; the process then ends.
_MOST_KEPT_MB = 200


def main() -> None:
    """Answer until the input ends."""
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    for line in sys.stdin.buffer:
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + CPU_SECONDS)
        print(json.dumps(_answer(line)), flush=True)
        if _megabytes() > _MOST_KEPT_MB:
            return


def _limit(what: int, most: int) -> None:
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _megabytes() -> float:
    """In memory now; the peak of `getrusage` includes that of the judge, which started this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def _answer(line: bytes) -> tuple[tuple[str, ...], str, str]:
    """Tags, refusal, and why the file cannot be read."""
    try:
        source, allow_library, allow_unreadable, reference = json.loads(line)
        if refusal := not_python(source):
            return (), refusal, ""
        found = lint(source, allow_library=allow_library, allow_unreadable=allow_unreadable, reference_source=reference)
        return found.tags, found.refusal, ""
    except RecursionError:
        return (), "", "it is nested too deeply"
    except MemoryError:
        return (), "", f"it takes more than {MEMORY_BYTES >> 20} MB"


if __name__ == "__main__":
    main()
