"""Which weights and inputs the answer does not depend on at all: dead code, that a kernel may leave out."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import torch

#: Calls spent at most on tensors that look dead when changing all of them at once does change the answer.
_SINGLE_TRIALS = 8

#: Model inputs in, tensors of the output out; runs with gradients when they are enabled.
Forward = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


def dead_tensors(forward: Forward, inputs: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of the weights, and "input 0", "input 1", …, that the output does not depend on.

    Suspects have no gradient, or one of zeros, against a random direction of the output; each is then changed, and
    is dead if the output stays bit for bit what it was. Models that cannot be differentiated have no suspects.

    Args:
        forward: the model; it must leave the tensors that it is given unchanged.
        inputs: tensors of its arguments.
        weights: its parameters by name; restored before this returns.
    """
    suspects = _suspects(forward, inputs, weights)
    if not suspects:
        return []
    with torch.no_grad():
        before = forward(inputs)

        def matters(names: Sequence[str]) -> bool:
            changed = [_moved(tensor) if f"input {i}" in names else tensor for i, tensor in enumerate(inputs)]
            kept = {name: weights[name].detach().clone() for name in names if name in weights}
            try:
                for name in kept:
                    weights[name].copy_(_moved(weights[name]))
                after = forward(changed)
            finally:
                for name, tensor in kept.items():
                    weights[name].copy_(tensor)
            return not all(torch.equal(one, other) for one, other in zip(before, after, strict=True))

        if not matters(suspects):
            return suspects
        return [name for name in suspects[:_SINGLE_TRIALS] if not matters([name])]


def _suspects(forward: Forward, inputs: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor]) -> list[str]:
    leaves = {f"input {i}": tensor.detach().requires_grad_() for i, tensor in enumerate(inputs) if _real(tensor)}
    leaves |= {name: tensor for name, tensor in weights.items() if _real(tensor) and tensor.requires_grad}
    given = [leaves.get(f"input {i}", tensor) for i, tensor in enumerate(inputs)]
    try:
        # Libraries warn of their own backward passes, which nobody here asked for.
        with torch.enable_grad(), warnings.catch_warnings(action="ignore"):
            outputs = [tensor for tensor in forward(given) if tensor.requires_grad]
            if not outputs:
                return []
            # A random direction: the sum of a softmax, for one, has no gradient at all.
            directions = [torch.randn_like(output) for output in outputs]
            found = torch.autograd.grad(outputs, list(leaves.values()), directions, allow_unused=True)
    except (RuntimeError, NotImplementedError):  # in place, not differentiable, or not enough memory
        return []
    return [name for name, slope in zip(leaves, found, strict=True) if slope is None or not bool(slope.any())]


def _real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same order of magnitude, also where they were zero."""
    return tensor.detach() * 1.5 + 0.5
