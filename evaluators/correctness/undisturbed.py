"""A call of a model that leaves no trace in it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[set[int]]:
    """Put the model's state back afterwards: buffers, and what its modules have as attributes.

    A running mean or a hidden state that is kept would make two calls on the same inputs differ. Parameters are not
    copied: a forward that changes those is none.

    Yields:
        The addresses of the memory that parameters, buffers and tensors among the attributes lie in.
    """
    modules = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    kept = [
        tensor
        for _, attributes, buffers in modules
        for tensor in (*attributes.values(), *buffers.values())
        if isinstance(tensor, torch.Tensor)
    ]
    copies = [tensor.clone() for tensor in kept]
    try:
        yield {tensor.untyped_storage().data_ptr() for tensor in (*kept, *model.parameters()) if tensor.numel()}
    finally:
        for module, attributes, buffers in modules:
            for now, before in ((vars(module), attributes), (module._buffers, buffers)):
                now.clear()
                now.update(before)
        with torch.no_grad():
            for tensor, copy in zip(kept, copies, strict=True):
                tensor.copy_(copy)
