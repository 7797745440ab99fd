"""`torch-op`: a Python package that registers the kernel as an operator of torch (`torch.library.custom_op`)."""

from kbevolve.evolve.exports.measured import MeasuredKernel


def torch_op(found: MeasuredKernel) -> dict[str, str]:
    """The files of the package: the operator, the kernel and the reference.

    Raises:
        UsageError: the kernel does not follow the weights that it is given.
    """
    found.check_weights()
    capability = None
    if found.device.type == "cuda":
        import torch

        capability = torch.cuda.get_device_capability(found.device.index)
    operator = f"{found.name}_{found.kernel.id}"
    return {
        "__init__.py": found.fill("torch_op.py.jinja", operator=operator, capability=capability),
        "kernel.py": found.text,
        "reference.py": found.reference,
    }
