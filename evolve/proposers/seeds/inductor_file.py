"""What torch.compile generated for a model, as a ModelNew file."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbevolve.configs.reference import as_model_new, with_forward, without_head
from kbevolve.configs.syntax import parse
from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.inductor_text import defined, pruned
from kbevolve.evolve.proposers.tuning.tunables import with_values

#: What launches kernels in generated code, what marks it as a GPU's, how many launches are worth a CUDA graph, and how
#: many are one from the start: with so many, launching may take longer than the device's work.
_LAUNCH = re.compile(r"\.run\(|\bextern_kernels\.|\btorch\.ops\.")
_ON_GPU = "torch.cuda._DeviceGuard("
_MANY_LAUNCHES = 8
_REPLAYED_FROM_THE_START = 24

#: One thread: Inductor's default is a pool of compiler processes that would outlive the import.
_HEADER = '''\
"""What torch.compile (Inductor, PyTorch {version}) generates, called by a ModelNew."""

{future}import torch._inductor.config

torch._inductor.config.compile_threads = 1
{trust}
'''

#: Inductor compiles six small programs to test whether the compiler supports this CPU's vector instructions: 7 of the
#: 10 s that a first kernel takes to build on two cores (measured). Without that support this seed fails to build.
_TRUST = "torch._inductor.config.cpp.vec_isa_ok = True\n"


class CannotWrapError(Exception):
    """The generated code does not work as a file of its own; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The result of torch.compile for one model."""

    #: The generated module.
    code: str
    #: The tensor for each argument of its `call`, in order, e.g. "self.gemm.weight" or "x".
    arguments: tuple[str, ...]
    #: Number of tensors that the graph returns, and places among them of those that the model returns.
    outputs: int
    returned: tuple[int, ...]
    #: Whether the model returns one tensor, not a tuple or list of them.
    single: bool
    #: Attributes that forward() replaces, e.g. "self.hidden": the place of the new tensor.
    replaced: Mapping[str, int] = field(default_factory=dict)
    #: What the module needs before it: the epilogues of its products.
    before: str = ""


def wrap(found: Capture, reference: str, *, version: str) -> str:
    """The kernel file: generated kernels, then `ModelNew` with the reference's constructor.

    Raises:
        CannotWrapError: the code needs constants or code outside its text, or its names clash with the reference's.
    """
    _check_signature(found)
    generated = pruned(found.code)
    future, model_new = without_head(as_model_new(reference))
    own, arguments = generated, f"[{', '.join(found.arguments)}]"
    call = f"call({arguments})"
    launches = len(_LAUNCH.findall(generated)) if _ON_GPU in generated else 0
    if launches >= _MANY_LAUNCHES:
        at_first = {"REPLAYED": str(int(launches >= _REPLAYED_FROM_THE_START))}
        own += f"\n\n{with_values(template('graph_replay'), at_first)}\n\nreplay = Replay(call)\n"
        inputs = [one for one in found.arguments if not one.startswith("self.")]
        call = f"replay({', '.join((arguments, *inputs))})"
    clash = defined(found.before + own) & defined(model_new)
    if clash:
        raise CannotWrapError(f"the reference and the generated code both define {', '.join(sorted(clash))}")
    # Parameters require gradients, and the generated code writes into its buffers with out=.
    model_new = with_forward(model_new, _body(found, call), decorator="torch.no_grad()")
    trust = _TRUST if "async_compile.cpp" in generated else ""
    return f"{_HEADER.format(version=version, future=future, trust=trust)}{found.before}{own}\n\n{model_new}"


def _body(found: Capture, call: str) -> str:
    """The statements of `forward`."""
    if not found.replaced and found.returned == tuple(range(found.outputs)):
        return f"return {call}[0]" if found.single else f"return {call}"
    results = [f"results[{place}]" for place in found.returned]
    return "\n".join(
        (
            f"results = {call}",
            *(f"{name} = results[{place}]" for name, place in found.replaced.items()),
            f"return {results[0] if found.single else ', '.join(results)}",
        )
    )


def _check_signature(found: Capture) -> None:
    """Check that the generated `call` takes and returns what the graph does, and needs nothing outside its text."""
    constant = re.search(r"^(_tensor_constant\w*|_frozen_param\w*|constant\d+|_torchbind\w*) = None", found.code, re.M)
    if constant:
        raise CannotWrapError(f"it keeps a constant tensor ({constant[1]}) outside its text")
    call = next(
        (node for node in ast.walk(parse(found.code)) if isinstance(node, ast.FunctionDef) and node.name == "call"),
        None,
    )
    if call is None:
        raise CannotWrapError("the generated module has no call(args)")
    taken = [
        len(node.targets[0].elts)
        for node in call.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Name)
        and node.value.id == "args"
    ]
    returned = [
        len(node.value.elts)
        for node in ast.walk(call)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    ]
    if taken != [len(found.arguments)] or returned != [found.outputs]:
        # Additional results are inputs that it changed; torch.compile copies those back outside `call`.
        raise CannotWrapError(
            f"the generated call takes {taken} and returns {returned} tensors; "
            f"the graph takes {len(found.arguments)} and returns {found.outputs}"
        )
