"""How fast a device can be at best: bandwidth and arithmetic as measured, and the times that follow for a problem.

The model is the roofline of Williams, Waterman and Patterson (CACM 52(4), 2009): a call takes at least as long as its
bytes take at full bandwidth and as its operations take at peak. Rates are measured by a copy and by matrix products
and not read off a data sheet, which promises more than anyone gets.

Two times come of it. The roofline is a goal: all inputs and weights read once, outputs written once, all products
computed. The floor is a proof of fraud: only what no honest kernel can leave out, at rates with room to spare.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kbevolve.evaluators.analysis.conditions import as_judged
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.disk_cache import DiskCache

#: Classes of precision, the most exact first (`archive.records.Evaluation.precision_class`).
CLASSES = ("fp64", "fp32", "tf32", "half")
#: An fp32 product out of low-precision parts needs three products of parts: high x high, high x low, low x high.
SPLIT_PRODUCTS = 3
#: Room of the floor over measured rates. A library's best product reaches 75 to 90 % of the hardware's peak; on a CPU,
#: neighbours on a shared machine can take half of it away while we measure.
HEADROOM = {"cuda": 1.3, "cpu": 2.0}
#: What "measured again" means: another number makes old files misses.
_FORMAT = 1
#: Edge of the square products. Smaller ones do not fill a large GPU; 2048 on a CPU takes some 0.1 s.
_EDGE = {"cuda": 8192, "cpu": 2048}
#: On a CPU a product of this edge is measured first. If it takes more than so many seconds, no larger one is measured.
_PROBE_EDGE, _LONG_SECONDS = 256, 0.01
#: Bytes of the buffers that are copied: far beyond any last-level cache. Times are the best of so many.
_COPIED = {"cuda": 1 << 30, "cpu": 1 << 28}
_REPEATS = 3
_RATES = "operations_per_second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The rates of one device."""

    #: Bytes read plus bytes written per second, of a copy or of a fill, whichever is more.
    bytes_per_second: float
    #: Precision of the product ("fp64", "fp32", "tf32", "half") -> floating-point operations per second. On a CPU
    #: there is no "tf32".
    operations_per_second: Mapping[str, float]
    #: Bytes that may still lie in the last-level cache when a call is over.
    l2_bytes: int
    #: How much faster than measured the floor lets a device be.
    headroom: float

    def peak(self, precision_class: str) -> float:
        """Operations per second that a kernel whose error is of this class can reach at most.

        Whatever rounds less than the class demands may be used: TF32 and fp16 have the same mantissa, and three
        products of parts give fp32 (Ootomo and Yokota, 2022) or emulate fp64 at the accuracy that an fp32 output shows.
        """
        rates = self.operations_per_second
        narrow = max(rates.get("tf32", 0.0), rates.get("half", 0.0))
        if precision_class in ("tf32", "half"):
            return max(narrow, *rates.values())
        return max(rates.get("fp32", 0.0), rates.get("fp64", 0.0), narrow / SPLIT_PRODUCTS)

    def raised_to(self, other: "Roofline") -> "Roofline":
        """The higher of each rate."""
        rates = {*self.operations_per_second, *other.operations_per_second}
        return replace(
            self,
            bytes_per_second=max(self.bytes_per_second, other.bytes_per_second),
            operations_per_second={
                name: max(self.operations_per_second.get(name, 0.0), other.operations_per_second.get(name, 0.0))
                for name in sorted(rates)
            },
        )

    def roofline_ms(self, precision_class: str, *, moved_bytes: int, operations: float) -> float:
        """Milliseconds in which all bytes are moved once and all operations done."""
        return 1e3 * max(moved_bytes / self.bytes_per_second, operations / self.peak(precision_class))

    def floor_ms(self, precision_class: str, *, written_bytes: int, operations: float) -> float:
        """Milliseconds below which no honest kernel can be; 0.0 when nothing is certain.

        Args:
            precision_class: the class that the kernel's error falls in.
            written_bytes: size of the outputs; what fits into the cache need not have left it.
            operations: only those that no rearrangement saves.
        """
        written = max(0, written_bytes - self.l2_bytes) / self.bytes_per_second
        return 1e3 * max(written, operations / self.peak(precision_class)) / self.headroom


def roofline_of(device: Device, *, disk_cache: DiskCache | None = None, fresh: bool = False) -> Roofline:
    """The device's rates, measured once (1 to 2 s) and then remembered.

    Args:
        device: which device.
        disk_cache: where they are remembered; the user's own when None.
        fresh: measure again; the better of both is kept, for neighbours on the machine only ever lower a rate.
    """
    disk_cache = DiskCache() if disk_cache is None else disk_cache
    key = f"{device.fingerprint}|{_FORMAT}"
    known = _from_tree(disk_cache.get("roofline", key))
    if known is None or fresh:
        measured = measure(device)
        known = measured if known is None else known.raised_to(measured)
        disk_cache.put("roofline", key, asdict(known))
    return known


def measure(device: Device) -> Roofline:
    """Run the copies and products now. On a GPU without room for them, smaller ones."""
    with as_judged(device, "fp32"):
        return Roofline(
            bytes_per_second=_bandwidth(device),
            operations_per_second=_products(device),
            l2_bytes=_cache_bytes(device),
            headroom=HEADROOM[device.type],
        )


def _bandwidth(device: Device) -> float:
    size = _COPIED[device.type]
    if device.type == "cuda":
        size = min(size, torch.cuda.mem_get_info(device.index)[0] // 4)
    source = torch.ones(size // 4, device=device.torch_name)
    target = torch.empty_like(source)
    copied = 2 * size / _best_seconds(lambda: target.copy_(source), device)
    # Written only: on a CPU a copy reads each line of the target before it writes it, a fill need not.
    filled = size / _best_seconds(lambda: target.fill_(1.0), device)
    return max(copied, filled)


def _products(device: Device) -> dict[str, float]:
    kinds = {"fp64": torch.float64, "fp32": torch.float32, "half": torch.float16}
    if device.type == "cpu":
        # Not fp16: without instructions of its own it is emulated, a hundred times slower.
        kinds["half"] = torch.bfloat16
    else:
        kinds["tf32"] = torch.float32
    rates = {}
    for name, dtype in kinds.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        rates[name] = _product_rate(device, dtype)
    return rates


def _product_rate(device: Device, dtype: torch.dtype) -> float:
    edge = _EDGE[device.type]
    while device.type == "cuda" and 4 * edge**2 * dtype.itemsize > torch.cuda.mem_get_info(device.index)[0]:
        edge //= 2
    if device.type == "cpu":
        seconds = _product_seconds(device, dtype, _PROBE_EDGE)
        if seconds > _LONG_SECONDS:  # emulated: the rate does not depend on the size, and 2048 takes minutes
            return 2 * _PROBE_EDGE**3 / seconds
    return 2 * edge**3 / _product_seconds(device, dtype, edge)


def _product_seconds(device: Device, dtype: torch.dtype, edge: int) -> float:
    # Random numbers: a GPU runs up to 15 % faster on zeros, which draw less power.
    left, right = (torch.randn(edge, edge, device=device.torch_name).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    return _best_seconds(lambda: torch.mm(left, right, out=product), device, all_busy=True)


def _best_seconds(act: Callable[[], Any], device: Device, *, all_busy: bool = False) -> float:
    act()  # loads the library, sets its workspace up, touches the pages
    best = float("inf")
    for _ in range(_REPEATS):
        if device.type == "cuda":
            torch.cuda.synchronize(device.index)
        start, worked = time.perf_counter(), time.process_time()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize(device.index)
        best = min(best, time.perf_counter() - start)
        if device.type == "cpu" and all_busy:
            # Processor time: it does not grow while others are at work here, as the wall's clock does.
            best = min(best, (time.process_time() - worked) / device.threads)
    return best


def _cache_bytes(device: Device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device.index).L2_cache_size)
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG") or 0) * unit)
    return max(sizes)


def _from_tree(tree: Any) -> Roofline | None:
    """What the disk cache kept; None when it is not what we write (a hand-edited file must not stop anybody)."""
    try:
        found = Roofline(
            bytes_per_second=float(tree["bytes_per_second"]),
            operations_per_second={str(name): float(rate) for name, rate in tree[_RATES].items()},
            l2_bytes=int(tree["l2_bytes"]),
            headroom=float(tree["headroom"]),
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    rates = (found.bytes_per_second, *found.operations_per_second.values(), found.headroom)
    return found if {"fp64", "fp32"} <= found.operations_per_second.keys() and min(rates) > 0 else None
