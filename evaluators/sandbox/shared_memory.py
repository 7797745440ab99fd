"""Memory that the judge allocates and shares with one worker: the only way tensors cross between processes.

On the CPU it is an anonymous file (memfd), on CUDA an allocation of its own. It is never part of torch's caching
allocator: an IPC handle opens the whole allocation, which must not contain the judge's reference outputs.
"""

import ctypes
import fcntl
import mmap
import os
from typing import Any

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.worker.memory import HANDLE_BYTES, DeviceMemory, IpcHandle


class SharedMemory:
    """Memory shared with one worker."""

    def __init__(self, device: Device, size: int) -> None:
        """Allocate `size` bytes on the device; EvaluatorError when it has not that much."""
        self.size = max(size, 1)
        self._descriptor: int | None = None
        self._address: int | None = None
        self._handle = ""
        try:
            self.memory = self._on_cpu() if device.type == "cpu" else self._on_cuda(device)
        except BaseException:
            self.close()
            raise

    def ticket(self) -> tuple[dict[str, Any], list[int]]:
        """What a worker needs to open it: plain values, and descriptors to send with them."""
        if self._descriptor is not None:
            return {"bytes": self.size}, [self._descriptor]
        return {"bytes": self.size, "handle": self._handle}, []

    def close(self) -> None:
        """Free the memory. `memory` and its views must not be used afterwards. May be called twice."""
        self.memory = torch.empty(0, dtype=torch.uint8)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._address is not None:
            torch.cuda.synchronize()
            _driver().cuMemFree_v2(ctypes.c_uint64(self._address))
            self._address = None

    def _on_cpu(self) -> torch.Tensor:
        self._descriptor = os.memfd_create("kbevolve-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._descriptor, self.size)
            # A worker that truncated the file would end the judge by SIGBUS at its next access.
            fcntl.fcntl(
                self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            )
            return torch.frombuffer(mmap.mmap(self._descriptor, self.size), dtype=torch.uint8)
        except OSError as error:
            raise EvaluatorError(
                f"{self.size / 1e9:.1f} GB of shared memory: {error.strerror}; use smaller sizes (CPU_SIZES)"
            ) from None

    def _on_cuda(self, device: Device) -> torch.Tensor:
        with torch.cuda.device(device.index):
            torch.cuda.synchronize()  # makes torch's context current, which the driver calls need
            driver = _driver()
            address = ctypes.c_uint64()
            status = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(self.size))
            if status:
                torch.cuda.empty_cache()
                status = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(self.size))
            if status:
                free = torch.cuda.mem_get_info(device.index)[0] / 2**30
                raise EvaluatorError(
                    f"{self.size / 1e9:.1f} GB on {device.description}: CUDA error {status}; use smaller sizes"
                ) from torch.OutOfMemoryError(
                    f"tried to allocate {self.size / 2**30:.2f} GiB, of which {free:.2f} GiB is free"
                )
            self._address = address.value
            handle = IpcHandle()
            status = driver.cuIpcGetMemHandle(ctypes.byref(handle), address)
            if status:
                raise EvaluatorError(
                    f"this system cannot share GPU memory between processes (CUDA error {status}); "
                    "in a container, start it with --ipc=host"
                )
            self._handle = ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES).hex()
            return torch.as_tensor(DeviceMemory(address.value, self.size), device=device.torch_name)


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
