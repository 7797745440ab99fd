"""A short vector for a large tensor, which still gives the distance to another tensor.

This is a count sketch (Charikar, Chen and Farach-Colton 2002, "Finding frequent items in data streams"): every element
gets a random sign and is added to one of P buckets. The map is linear, so sketch(c) - sketch(r) is the sketch of c - r,
and for random signs E ||sketch(x)||^2 = ||x||^2. The signs are the judge's secret: without them a candidate cannot make
a wrong tensor with the right sketch. Integers get random odd factors and are added modulo 2^64; there one different
element always changes the sketch.
"""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial

import torch

from kbevolve.evaluators.correctness.truth import as_real

#: Fewest buckets. The relative standard deviation of a distance is at most sqrt(1 / (2 P)) = 0.55 %. Even with `_EXTRA`
#: the number is below torch's grain of 32768 elements, so that torch starts no thread pool on the CPU.
BUCKETS = 1 << 14
#: The number of buckets is a secret odd number, larger by up to this share. With a power of two, a wrong column of a
#: matrix whose width is a power of two would fall into one bucket, where most of it may cancel.
_EXTRA = 1 / 4
#: Rows of buckets handled at a time. On CUDA the temporaries take some 50 MB, about the second-level cache.
_ROWS = {"cpu": 1, "cuda": 256}
#: Number of signs drawn; a longer tensor uses stretches of them that begin at random places. On the CPU they stay in
#: the second-level cache. Two stretches sometimes agree, so the square of an error that is equal in all n elements is
#: overestimated by n / P / signs: 1.6 % for 16 million elements on the CPU.
_SIGNS = {"cpu": 1 << 16, "cuda": 1 << 24}
#: Dtypes that the kernel of `sketch_cuda` reads.
_FUSED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Sketch:
    """Makes sketches of tensors of one shape. Only sketches of the same object can be compared."""

    def __init__(self, shape: Sequence[int], *, device: torch.device | str, seed: int, buckets: int = BUCKETS) -> None:
        """Draw the signs from a secret seed. A tensor with at most `buckets` elements is kept whole."""
        self._device = torch.device(device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._elements = math.prod(shape)
        self._whole = self._elements <= buckets
        #: P.
        self.buckets = buckets // 2 * 2 + 1 + 2 * int(self._below(max(1, int(_EXTRA * buckets / 2)), 1))
        self._stretch = _ROWS[self._device.type] * self.buckets
        # Twice the elements: a complex number counts as two.
        stretches = -(-2 * self._elements // self._stretch)
        self._drawn = stretches * self._stretch
        self._starts = [number * self._stretch for number in range(stretches)]
        if self._drawn > _SIGNS[self._device.type]:
            self._drawn = _SIGNS[self._device.type] + self._stretch
            self._starts = self._below(_SIGNS[self._device.type], stretches).tolist()

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sketch of one tensor.

        Returns:
            fp64 (P,); (2, P) when not all elements are finite, the second row for those that are not; int64 (P,) for
            integers and booleans. For a tensor that is kept whole: a copy of its elements in place of the buckets.
        """
        flat = as_real(tensor).reshape(-1)
        if not flat.is_floating_point():
            return flat.to(torch.int64, copy=True) if self._whole else self._add_up(flat, self._factors)
        values = self._sketch(flat)
        # One NaN or infinity makes its bucket and the sum of all buckets NaN or infinite.
        if math.isfinite(float(values.sum())):
            return values
        return torch.stack([self._sketch(flat, _finite), self._sketch(flat, _codes)])

    def distance(self, one: torch.Tensor, other: torch.Tensor) -> float:
        """Estimate of ||c - r|| from the sketches of c and r; exact for tensors that are kept whole.

        It is infinite where one tensor holds NaN or an infinity and the other has another value. For integers and
        booleans it is the share of elements that differ: 0 only when none does, infinite when all buckets do.
        """
        if one.shape != other.shape:
            return math.inf
        if one.dtype == torch.int64:
            return self._share(float((one != other).double().mean())) if one.numel() else 0.0
        difference = one - other
        if difference.ndim == 2 and bool(difference[1].any()):
            return math.inf
        distance = float(torch.linalg.vector_norm(difference))
        return distance if math.isfinite(distance) else math.inf

    def _sketch(self, flat: torch.Tensor, select: Callable[[torch.Tensor], torch.Tensor] | None = None) -> torch.Tensor:
        if self._whole:
            return (select(flat) if select else flat).to(torch.float64, copy=True)
        if self._fused and not select and flat.dtype in _FUSED:
            return self._fused(flat.contiguous())
        return self._add_up(flat, self._signs, select)

    def _add_up(
        self, flat: torch.Tensor, factors: torch.Tensor, select: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> torch.Tensor:
        """The buckets: elements `buckets` apart, each times its factor, added in fp64 or modulo 2^64."""
        dtype = torch.float64 if factors.is_floating_point() else torch.int64
        total = torch.zeros(self.buckets, dtype=dtype, device=self._device)
        for piece, start in zip(torch.split(flat, self._stretch), self._starts, strict=False):
            size = piece.numel()
            # A product with a sign is exact in the tensor's dtype.
            signed = (select(piece) if select else piece) * factors[start : start + size]
            whole = size // self.buckets * self.buckets
            if size > self.buckets:
                # All rows first: the total is then read and written once.
                total += signed[:whole].view(-1, self.buckets).sum(0, dtype=dtype)
                signed = signed[whole:]
            total[: signed.numel()] += signed
        return total

    def _share(self, differing: float) -> float:
        """Share of elements that differ, from that of buckets: n elements miss a bucket with probability e^(-n / P)."""
        if self._whole or not differing:
            return differing
        count = -self.buckets * math.log1p(-differing) if differing < 1 else math.inf
        return count / self._elements

    def _below(self, limit: int, count: int) -> torch.Tensor:
        return torch.randint(limit, (count,), generator=self._generator, device=self._device)

    @cached_property
    def _signs(self) -> torch.Tensor:
        return self._below(2, self._drawn).float() * 2 - 1

    @cached_property
    def _fused(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """One pass for a dozen of torch; None where Triton is missing or its result differs from torch's."""
        if self._device.type != "cuda":
            return None
        try:
            from kbevolve.evaluators.correctness.sketch_cuda import add_up

            signs = self._signs.to(torch.int8)
            starts = torch.tensor(self._starts, device=self._device)
            fused = partial(add_up, signs=signs, starts=starts, buckets=self.buckets, rows=_ROWS["cuda"])
            some = torch.linspace(-1.0, 1.0, min(self._elements, 3 * self.buckets + 5), device=self._device)
            right = torch.allclose(fused(some), self._add_up(some, self._signs), rtol=0, atol=1e-12)
        except Exception:  # no Triton, compiler or space for its cache: torch is only slower
            return None
        return fused if right else None

    @cached_property
    def _factors(self) -> torch.Tensor:
        return self._below(1 << 62, self._drawn) * 2 + 1


def compile_ahead(device: torch.device | str) -> threading.Thread:
    """Compile what sketches of fp32 tensors on a device need, in a thread: to be joined before something is timed.

    A judge's first sketch took 2 to 3 s (an H200, 2026-11-28): Triton's import, its launcher's compiler, the kernel.
    """

    def compile_both() -> None:
        with suppress(Exception):  # sketches say themselves what they lack
            for elements in (1 << 10, (1 << 10) + 1):  # Triton compiles anew for numbers that 16 divides
                tensor = torch.zeros(elements, device=device)
                Sketch(tensor.shape, device=device, seed=0, buckets=1 << 8).of(tensor)

    thread = threading.Thread(target=compile_both, name="sketch", daemon=True)
    thread.start()
    return thread


def _finite(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values.isfinite(), values, 0.0)


def _codes(values: torch.Tensor) -> torch.Tensor:
    """1 for infinity, 2 for minus infinity, 3 for NaN, 0 for a number."""
    return (values == math.inf).float() + 2 * (values == -math.inf).float() + 3 * values.isnan().float()
