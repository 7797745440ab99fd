"""Weights and inputs that the output does not depend on: dead code, which a kernel may omit."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import torch

#: Suspects that are tried, a call each.
_MOST_TRIED = 8

#: Input tensors -> output tensors; with gradients where they are enabled.
Forward = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


def dead_tensors(forward: Forward, inputs: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of the weights, and "input 0", "input 1", …, that the output does not depend on; the first few.

    Suspects have no gradient, or a gradient of zeros, along a random direction of the output. A suspect is dead if the
    output stays bit for bit equal when it changes. A model without derivatives has no suspects. `forward` must not
    change its arguments; inputs and weights are restored.
    """
    suspects = _suspects(forward, inputs, weights)[:_MOST_TRIED]
    with torch.no_grad():
        before = forward(inputs) if suspects else []

        def matters(name: str) -> bool:
            changed = [_changed(tensor) if name == f"input {i}" else tensor for i, tensor in enumerate(inputs)]
            weight = weights.get(name, torch.empty(0))
            original = weight.clone()
            try:
                weight.copy_(_changed(weight))
                after = forward(changed)
            finally:
                weight.copy_(original)
            return not all(torch.equal(one, other) for one, other in zip(before, after, strict=True))

        return [name for name in suspects if not matters(name)]


def _suspects(forward: Forward, inputs: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor]) -> list[str]:
    leaves = {f"input {i}": tensor.detach().requires_grad_() for i, tensor in enumerate(inputs) if _real(tensor)}
    leaves |= {name: tensor for name, tensor in weights.items() if _real(tensor) and tensor.requires_grad}
    tensors = [leaves.get(f"input {i}", tensor) for i, tensor in enumerate(inputs)]
    try:
        # Libraries warn about their backward passes, which the user did not ask for.
        with torch.enable_grad(), warnings.catch_warnings(action="ignore"):
            outputs = [tensor for tensor in forward(tensors) if tensor.requires_grad]
            if not outputs:
                return []
            # A random direction, because e.g. the sum of a softmax has no gradient. Then the gradient of one number:
            # with a direction for each output torch imports sympy, which takes two seconds.
            real = [torch.view_as_real(output) if output.is_complex() else output for output in outputs]
            total = torch.stack([(output * torch.randn_like(output)).sum().double() for output in real]).sum()
            gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    except (RuntimeError, NotImplementedError):  # in place, not differentiable, or not enough memory
        return []
    return [name for name, slope in zip(leaves, gradients, strict=True) if slope is None or not bool(slope.any())]


def _real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0


def _changed(tensor: torch.Tensor) -> torch.Tensor:
    """Other values of the same order of magnitude, nonzero also where they were zero."""
    return tensor.detach() * 1.5 + 0.5
