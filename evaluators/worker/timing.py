"""Times one call: CUDA events behind a flushed L2 on a GPU, the monotonic clock on a CPU.

On the same stream, the inputs are written just before the timed window, the output is copied right after it, and then
the inputs are destroyed. Work that still runs elsewhere (a side stream, a thread, a tensor that computes when it is
read) finds no inputs, or is too late for the copy.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Bound before any candidate is imported: patching torch or time later does not change them.
_clock = time.perf_counter_ns
_copy = torch.Tensor.copy_
_fill = torch.Tensor.fill_
_view = torch.Tensor.view
_sum = torch.Tensor.sum
# What the methods of torch.cuda call in the end; a torch without CUDA has none of it.
_synchronize: Any = getattr(torch._C, "_cuda_synchronize", None)
record: Any = getattr(torch._C._CudaEventBase, "record", None)
elapsed: Any = getattr(torch._C._CudaEventBase, "elapsed_time", None)

#: `CU_LIMIT_PERSISTING_L2_CACHE_SIZE` of the driver's cuCtxSetLimit.
_PERSISTING_L2 = 0x06
#: As a float of any width this byte is NaN, as an integer no value of an input.
_POISON = 0xFF


class Stopwatch:
    """Times calls on one device; the same program times the reference and the candidate."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flush: torch.Tensor | None = None
        self._driver: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.default_stream(device)
            self._start, self._end = new_event(), new_event()
            self._driver = ctypes.CDLL("libcuda.so.1")

    def time(
        self,
        call: Callable[[], Any],
        *,
        buffers: Sequence[torch.Tensor],
        contents: Sequence[torch.Tensor],
        deliver: Callable[[Any], Any],
    ) -> tuple[float, Any]:
        """Milliseconds of one call, and what `deliver` returned for its output.

        Args:
            call: runs the kernel on the buffers.
            buffers: the candidate's inputs, always the same memory.
            contents: their values during the call.
            deliver: copies the output away.
        """
        if self._device.type == "cuda":
            return self._on_cuda(call, buffers, contents, deliver)
        for buffer, content in zip(buffers, contents, strict=True):
            _copy(buffer, content)
        start = _clock()
        output = call()
        end = _clock()
        delivered = deliver(output)
        poison(buffers)
        return (end - start) / 1e6, delivered

    def _on_cuda(
        self,
        call: Callable[[], Any],
        buffers: Sequence[torch.Tensor],
        contents: Sequence[torch.Tensor],
        deliver: Callable[[Any], Any],
    ) -> tuple[float, Any]:
        # A candidate may have left another stream current; the default one is measured and copied.
        torch.cuda.set_stream(self._stream)
        self._reset_l2()
        for buffer, content in zip(buffers, contents, strict=True):
            _copy(buffer, content)
        self._flush_l2()
        record(self._start, self._stream)
        output = call()
        record(self._end, self._stream)
        torch.cuda.set_stream(self._stream)
        delivered = deliver(output)
        poison(buffers)
        del output
        synchronize()
        return float(elapsed(self._start, self._end)), delivered

    def _reset_l2(self) -> None:
        """Reset the part of the L2 that is reserved for persisting lines, which survive a flush."""
        self._driver.cuCtxSetLimit(_PERSISTING_L2, ctypes.c_size_t(0))
        self._driver.cuCtxResetPersistingL2Cache()

    def _flush_l2(self) -> None:
        if self._flush is None:
            size = 4 * torch.cuda.get_device_properties(self._device).L2_cache_size
            self._flush = torch.zeros(max(size, 1 << 20) // 4, dtype=torch.int32, device=self._device)
            self._flushed = torch.zeros((), dtype=torch.int64, device=self._device)
        # A write evicts all lines of the earlier call. Then other memory is read, so that the dirty lines are written
        # back now and not inside the window.
        half = self._flush.numel() // 2
        _fill(self._flush[:half], 0)
        _copy(self._flushed, _sum(self._flush[half:]))


def synchronize() -> None:
    """Wait for everything on this process's GPU."""
    if _synchronize is not None:
        _synchronize()


def poison(tensors: Sequence[torch.Tensor]) -> None:
    """Overwrite tensors with bytes that are NaN."""
    for tensor in tensors:
        if tensor.numel():
            _fill(as_bytes(tensor), _POISON)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor without gaps, as uint8 of one axis."""
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return _view(flat, torch.uint8)


def new_event() -> torch.cuda.Event:
    """An event that measures time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
