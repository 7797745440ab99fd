"""A cache file of Kernel Tuner, in which a whole space was measured, as a landscape of ours.

The BAT and FAIR benchmark hubs publish such files (https://github.com/AutoTuningAssociation/benchmark_hub, MIT). A
restriction of the space shows in what the file lacks: those configurations do not exist.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.simulation.measured import FORMAT

#: Timings kept of a configuration, evenly spaced among all in order of size, so that median and spread remain.
TIMINGS = 8


def converted(path: Path) -> str:
    """The landscape of a cache file, which may be compressed by gzip.

    Raises:
        UsageError: the file has no `tune_params` and `cache` with times.
    """
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = json.loads(text)
    try:
        parameters = {name: values for name, values in found["tune_params"].items() if len(values) > 1}
        results = [
            ([one[name] for name in parameters], _result(one))
            for one in found["cache"].values()
            if all(one[name] in values for name, values in parameters.items())
        ]
        kernel, device = found["kernel_name"], found["device_name"] or "a device without a name"
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: no cache file of Kernel Tuner, it lacks {error}; give one with every time") from None
    times = [result[0] for _, result in results if isinstance(result, list)]
    if not times:
        raise UsageError(f"{path}: none of {len(results)} configurations has a time")
    landscape = {
        "format": FORMAT,
        "name": path.name.partition(".")[0],
        "about": f"{kernel} on {device}",
        "unit": "ms",
        "reference_ms": times[0],
        "parameters": list(parameters.items()),
        "values": results,
    }
    return json.dumps(landscape, separators=(",", ":")) + "\n"


def _result(configuration: dict[str, Any]) -> list[float] | str:
    """Milliseconds of some calls, or what went wrong."""
    if not isinstance(configuration["time"], int | float):
        return f"BUILD_FAILED: {configuration['time']}"
    times = sorted(configuration.get("times") or [configuration["time"]])
    kept = min(TIMINGS, len(times))
    return [float(times[(2 * at + 1) * len(times) // (2 * kept)]) for at in range(kept)]
