"""The measured peak rates of a device, and the shortest times that they allow for a problem.

The model is the roofline of Williams, Waterman and Patterson (CACM 52(4), 2009): a call takes at least as long as its
bytes take at full bandwidth and its operations at peak. Rates are measured by a copy and by matrix products, because
data sheets promise more than programs reach.

The roofline time is a goal: all inputs and weights read once, outputs written once, all products computed. A time
below the floor proves cheating: the floor counts only what no honest kernel can omit, at rates above the measured ones.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from kbevolve.evaluators.analysis.conditions import judging_conditions
from kbevolve.evaluators.device.devices import Device, cache_bytes
from kbevolve.evaluators.disk_cache import DiskCache

#: Classes of precision, the most exact first (`archive.records.Evaluation.precision_class`).
CLASSES = ("fp64", "fp32", "tf32", "half")
#: An fp32 product of low-precision parts needs three products: high x high, high x low, low x high.
SPLIT_PRODUCTS = 3
#: Formats whose products are of class "tf32" or "half".
_NARROW = ("tf32", "fp16", "bf16")
#: The floor's rates as a multiple of the measured ones. A library's best product reaches 75 to 90 % of the hardware's
#: peak; on a shared CPU other programs can take half of it during the measurement.
HEADROOM = {"cuda": 1.3, "cpu": 2.0}
#: Version of the measurement; another number makes cached rates invalid.
_FORMAT = 2
#: Edge of the square products. Smaller ones do not fill a large GPU; 2048 takes some 0.1 s on a CPU.
_EDGE = {"cuda": 8192, "cpu": 2048}
#: On a CPU a product of this edge is measured first; above so many seconds no larger one is measured.
_PROBE_EDGE, _LONG_SECONDS = 256, 0.01
#: Bytes of the copied buffers, far larger than any last-level cache. A time is the best of so many repeats.
_COPIED = {"cuda": 1 << 30, "cpu": 1 << 28}
_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The rates of one device."""

    #: Bytes read plus bytes written per second, of a copy or a fill, whichever is more.
    bytes_per_second: float
    #: Format of the operands -> operations per second of a product: "fp64", "fp32", and "bf16" on a CPU; on a GPU also
    #: "tf32", "fp16", and "fp8" and "int8" where torch can multiply those.
    operations_per_second: Mapping[str, float]
    #: Bytes that may still be in the last-level cache when a call ends.
    l2_bytes: int
    #: Factor of the floor's rates over the measured ones.
    headroom: float

    def peak(self, precision_class: str) -> float:
        """Most operations per second of a kernel whose error is of this class.

        The kernel may use any unit that is accurate enough: TF32 and fp16 have the same mantissa, and three products of
        parts give fp32 (Ootomo and Yokota, 2022) or fp64 as accurate as an fp32 output shows. For fp32, the two small
        ones of them may be of fp8: E is 1e-5 to 4e-5 then (docs/decisions.md).
        """
        rates = self.operations_per_second
        narrow = max(rates.get(name, 0.0) for name in _NARROW)
        wide = max(rates.get("fp32", 0.0), rates.get("fp64", 0.0))
        if precision_class in ("tf32", "half"):
            return max(wide, narrow)
        mixed = precision_class == "fp32" and narrow and rates.get("fp8", 0.0)
        return max(wide, narrow / SPLIT_PRODUCTS, 1 / (1 / narrow + 2 / mixed) if mixed else 0.0)

    def raised_to(self, other: "Roofline") -> "Roofline":
        """The higher of each rate."""
        rates, others = self.operations_per_second, other.operations_per_second
        return replace(
            self,
            bytes_per_second=max(self.bytes_per_second, other.bytes_per_second),
            operations_per_second={
                name: max(rates.get(name, 0.0), others.get(name, 0.0)) for name in sorted({*rates, *others})
            },
        )

    def roofline_ms(self, precision_class: str, *, moved_bytes: int, operations: float) -> float:
        """Milliseconds to move all bytes once and to do all operations, whichever takes longer."""
        return 1e3 * max(moved_bytes / self.bytes_per_second, operations / self.peak(precision_class))

    def floor_ms(self, precision_class: str, *, written_bytes: int, operations: float) -> float:
        """Milliseconds that every honest kernel needs at least; 0.0 when nothing is certain.

        `operations` are only those that no rearrangement saves. Written bytes may still be in the cache.
        """
        written = max(0, written_bytes - self.l2_bytes) / self.bytes_per_second
        return 1e3 * max(written, operations / self.peak(precision_class)) / self.headroom


def roofline_of(device: Device, *, disk_cache: DiskCache | None = None, fresh: bool = False) -> Roofline:
    """The device's rates, measured once (1 to 2 s) and then cached on disk, in the user's own cache if none is given.

    With `fresh`, measure again and keep the higher rates: other programs on the machine can only lower a rate.
    """
    disk_cache = disk_cache or DiskCache()
    key = f"{device.fingerprint}|{_FORMAT}"
    known = _from_tree(disk_cache.get("roofline", key))
    if known is None or fresh:
        measured = measure(device)
        known = measured if known is None else known.raised_to(measured)
        disk_cache.put("roofline", key, asdict(known))
    return known


def measure(device: Device) -> Roofline:
    """Run the copies and products now; smaller ones on a GPU with too little free memory."""
    with judging_conditions(device, "fp32"):
        return Roofline(
            bytes_per_second=_bandwidth(device),
            operations_per_second=_products(device),
            l2_bytes=max(cache_bytes(device).values(), default=0),
            headroom=HEADROOM[device.type],
        )


def _bandwidth(device: Device) -> float:
    size = _COPIED[device.type]
    if device.type == "cuda":
        size = min(size, torch.cuda.mem_get_info(device.index)[0] // 4)
    source = torch.ones(size // 4, device=device.torch_name)
    target = torch.empty_like(source)
    copied = 2 * size / _best_seconds(lambda: target.copy_(source), device)
    # Writes only: on a CPU a copy reads each line of the target before it writes it, a fill need not.
    filled = size / _best_seconds(lambda: target.fill_(1.0), device)
    return max(copied, filled)


def _products(device: Device) -> dict[str, float]:
    # Not fp16 on a CPU: those without instructions for it emulate it a hundred times slower.
    kinds = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
    if device.type == "cuda":
        kinds |= {"tf32": torch.float32, "fp16": torch.float16, "fp8": torch.float8_e4m3fn, "int8": torch.int8}
    rates = {}
    for name, dtype in kinds.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        try:
            rates[name] = _product_rate(device, dtype)
        except RuntimeError:
            if name not in ("fp8", "int8"):  # not every GPU and version of torch has these
                raise
    return rates


def _product_rate(device: Device, dtype: torch.dtype) -> float:
    edge = _EDGE[device.type]
    while device.type == "cuda" and 4 * edge**2 * dtype.itemsize > torch.cuda.mem_get_info(device.index)[0]:
        edge //= 2
    if device.type == "cpu":
        seconds = _product_seconds(device, dtype, _PROBE_EDGE)
        if seconds > _LONG_SECONDS:  # emulated: the rate does not depend on the size, and an edge of 2048 takes minutes
            return 2 * _PROBE_EDGE**3 / seconds
    return 2 * edge**3 / _product_seconds(device, dtype, edge)


def _product_seconds(device: Device, dtype: torch.dtype, edge: int) -> float:
    # Random numbers: a GPU is up to 15 % faster on zeros, which need less power.
    left, right = (torch.randn(edge, edge, device=device.torch_name) for _ in range(2))
    if dtype is torch.int8:
        left, right = (tensor.mul_(32).clamp_(-127, 127) for tensor in (left, right))
    left, right = left.to(dtype), right.to(dtype)
    if dtype is torch.int8:
        return _best_seconds(lambda: torch._int_mm(left, right.t()), device)
    if dtype is torch.float8_e4m3fn:
        one = torch.ones((), device=left.device)
        keywords: dict[str, Any] = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return _best_seconds(lambda: torch._scaled_mm(left, right.t(), **keywords), device)
    product = torch.empty_like(left)
    return _best_seconds(lambda: torch.mm(left, right, out=product), device, all_busy=True)


def _best_seconds(act: Callable[[], Any], device: Device, *, all_busy: bool = False) -> float:
    act()  # loads the library, allocates its workspace, touches the pages
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
            # CPU time, which other programs on the machine do not lengthen, unlike wall-clock time.
            best = min(best, (time.process_time() - worked) / device.threads)
    return best


def _from_tree(tree: Any) -> Roofline | None:
    """The cached rates; None when the entry is damaged: an edited file must not stop a run."""
    try:
        found = Roofline(**tree)
        rates = (found.bytes_per_second, found.headroom, *found.operations_per_second.values())
        valid = {"fp64", "fp32"} <= found.operations_per_second.keys() and min(rates) > 0 and found.l2_bytes >= 0
    except (TypeError, AttributeError):
        return None
    return found if valid else None
