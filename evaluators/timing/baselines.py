"""What a kernel should beat: eager PyTorch, and the best of PyTorch's own ways to make the reference faster.

torch.compile is slower than eager on many problems and faster on others, so none of these ways is the baseline for all
problems. All run on the same inputs against eager in paired rounds, and all but one at the same precision.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.timing.statistics import Speedup

#: The reference without a wrapper; every speedup is over it.
EAGER = "eager"
#: Eager with PyTorch's default flags, which let cuDNN compute in TF32: what KernelBench compares with. Of less
#: precision than the task may ask for, so it is reported, and never the best baseline.
DEFAULT_FLAGS = "default-flags"
#: Type of device -> the ways that are timed against eager (`worker.baselines.wrap`), the cheapest to prepare first. On
#: a CPU there are no graphs, and max-autotune chooses among the libraries that compile calls anyway.
BASELINES: Mapping[str, tuple[str, ...]] = {
    "cuda": (DEFAULT_FLAGS, "compile", "graph", "max-autotune"),
    "cpu": ("compile",),
}

_KIND = "baselines"
#: Version of the measurement: another number makes every cached baseline a miss.
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One of PyTorch's own ways to run a problem's reference."""

    #: "eager" or one of `BASELINES`.
    name: str
    #: Eager's time over its own, with a 95 % interval; None when it failed.
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    #: Why it cannot be used, in one line; "" when it can.
    failure: str = ""

    @classmethod
    def of(cls, name: str, speedup: Speedup) -> "Baseline":
        """A baseline that was measured."""
        return cls(name=name, speedup=speedup.estimate, low=speedup.low, high=speedup.high)


def best(baselines: Iterable[Baseline]) -> Baseline:
    """The fastest baseline at the task's precision; eager when no other is faster."""
    eager = Baseline(name=EAGER, speedup=1.0, low=1.0, high=1.0)
    rivals = [one for one in baselines if one.name != DEFAULT_FLAGS]
    return max([eager, *rivals], key=lambda one: one.speedup or 0.0)


def over_best(speedup: float, baselines: Iterable[Baseline]) -> float:
    """A speedup over eager as a speedup over the fastest baseline; never more than over eager."""
    return speedup / (best(baselines).speedup or 1.0)


def missing(device: Device, known: Iterable[Baseline]) -> tuple[str, ...]:
    """Names of the baselines of this device that were not measured yet."""
    names = {one.name for one in known}
    return tuple(name for name in BASELINES[device.type] if name not in names)


def remember(
    disk_cache: DiskCache, baselines: Iterable[Baseline], *, problem: str, device: Device, precision: str
) -> None:
    """Cache those that were measured. One that failed is measured again: a compiler may be installed by then."""
    kept = [asdict(one) for one in baselines if one.speedup is not None]
    disk_cache.put(_KIND, _key(problem, device, precision), kept)


def recall(disk_cache: DiskCache, *, problem: str, device: Device, precision: str) -> tuple[Baseline, ...]:
    """Cached baselines of this problem (its id), device, precision and versions, in the order of `BASELINES`."""
    entry = disk_cache.get(_KIND, _key(problem, device, precision))
    try:
        found = {tree["name"]: Baseline(**tree) for tree in entry or ()}
    except (TypeError, KeyError):  # the fields are not ours: measure again
        return ()
    return tuple(found[name] for name in BASELINES[device.type] if name in found)


def _key(problem: str, device: Device, precision: str) -> str:
    # The fingerprint holds the model of the device and the versions of torch, CUDA and Triton.
    return f"{_FORMAT}/{problem}/{precision}/{device.fingerprint}"
