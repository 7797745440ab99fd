"""The backend flags and dtypes of each precision, for judge and worker."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: Floating dtype of weights and inputs, by precision.
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def set_flags(precision: str) -> None:
    """Allow TF32 in products and convolutions only for tf32 tasks (cuDNN allows it by default)."""
    allowed = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def flags_for(precision: str) -> Iterator[None]:
    """The flags of a precision, and the old ones afterwards: the judge's process may be a user's program."""
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    set_flags(precision)
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def cpu_precisions() -> tuple[str, ...]:
    """How oneDNN computes products, convolutions and recurrences of fp32 on a CPU; empty where torch has no choice."""
    parts = [getattr(torch.backends.mkldnn, name, None) for name in ("matmul", "conv", "rnn")]
    return tuple(str(getattr(part, "fp32_precision", "")) for part in parts)


def flags_are_set(precision: str) -> bool:
    """Whether the flags are as `set_flags` leaves them."""
    allowed = precision == "tf32"
    flags = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    return flags == (allowed, allowed)


def cast(tensor: torch.Tensor, precision: str) -> torch.Tensor:
    """Floating tensors in the task's dtype; integers and booleans as they are."""
    return tensor.to(DTYPES[precision]) if tensor.is_floating_point() else tensor
