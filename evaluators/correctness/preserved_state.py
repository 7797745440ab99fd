"""A call of a model that leaves the model's state unchanged."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def preserved_state(model: torch.nn.Module) -> Iterator[set[int]]:
    """Restore the model's buffers and the attributes of its modules afterwards.

    Otherwise two calls on the same inputs would differ where forward keeps a running mean or a hidden state.
    Parameters are not copied: a forward pass does not change them.

    Yields:
        The addresses of the storages of parameters, buffers and tensors among the attributes.
    """
    modules = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    tensors = [
        value
        for _, attributes, buffers in modules
        for value in (*attributes.values(), *buffers.values())
        if isinstance(value, torch.Tensor)
    ]
    copies = [tensor.clone() for tensor in tensors]
    try:
        yield {tensor.untyped_storage().data_ptr() for tensor in (*tensors, *model.parameters()) if tensor.numel()}
    finally:
        for module, attributes, buffers in modules:
            for now, before in ((vars(module), attributes), (module._buffers, buffers)):
                now.clear()
                now.update(before)
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)
