"""Opens memory that the judge allocated: a file descriptor on the CPU, the driver's IPC handle on CUDA.

Also releases what torch caches.
"""

import ctypes
import mmap
import os
from typing import Any

import torch

#: `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag there is.
_LAZY_PEER_ACCESS = 1
#: Bytes of a `CUipcMemHandle`.
HANDLE_BYTES = 64
#: Memory is short where less than this share of the device is free.
_SHORT = 1 / 3


class DeviceMemory:
    """Raw device memory for torch (`__cuda_array_interface__`); owns nothing."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class IpcHandle(ctypes.Structure):
    """`CUipcMemHandle`: 64 bytes that name an allocation of another process."""

    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


def open_shared(ticket: dict[str, Any], descriptors: list[int]) -> torch.Tensor:
    """The judge's memory as a uint8 tensor of one axis.

    Args:
        ticket: ``{"bytes": n}`` with a descriptor, or ``{"bytes": n, "handle": hexadecimal}`` on CUDA.
        descriptors: that came with the ticket.
    """
    size = ticket["bytes"]
    if "handle" not in ticket:
        (descriptor,) = descriptors
        view = mmap.mmap(descriptor, size)
        os.close(descriptor)
        return torch.frombuffer(view, dtype=torch.uint8)
    torch.cuda.synchronize()  # makes torch's context current, which the driver call needs
    raw = bytes.fromhex(ticket["handle"])
    handle = IpcHandle()
    ctypes.memmove(ctypes.byref(handle), raw, HANDLE_BYTES)
    address = ctypes.c_uint64()
    driver = ctypes.CDLL("libcuda.so.1")
    status = driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, _LAZY_PEER_ACCESS)
    if status:
        raise RuntimeError(f"cuIpcOpenMemHandle failed with CUDA error {status}")
    return torch.as_tensor(DeviceMemory(address.value, size), device="cuda")


def release_when_short(device: torch.device) -> None:
    """Release the memory that torch caches after a call, where the judge may need it for the next truth."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        if free < _SHORT * total:
            torch.cuda.empty_cache()
