"""What the lint can say about a kernel: its tags, and the rule classes it refuses."""

from dataclasses import dataclass, field

#: Every tag and what it says of a kernel. `docs/tags.md` shows the same table to users.
TAGS = {
    "cuda-graph": "captures or replays a CUDA graph",
    "data-pointer": "asks for the address, identity or version of a tensor, as raw-pointer launches must",
    "exec": "runs text as code, imports by a computed name, or decodes an encoded text",
    "fast-math": "asks the compiler or the device for approximate arithmetic",
    "file-write": "writes, renames or removes files",
    "flags": "sets torch's flags, device limits or environment variables",
    "foreign-library": "loads a shared library that it did not build, or looks symbols up at run time",
    "frames": "looks at the interpreter around it: stack frames, live objects, loaded modules",
    "half-types": "computes in fp16, bf16, fp8 or TF32 somewhere (Triton's default for fp32 products is TF32)",
    "library-heavy": "calls a library for a product, convolution, attention, recurrence, factorisation or transform",
    "library-light": "calls torch for elementwise work, reductions, normalisations, copies with arithmetic",
    "library-only": "has no kernel of its own",
    "module-cache": "keeps state from one call to the next: globals, attributes, caches, C++ statics",
    "network": "opens connections or downloads",
    "patches-torch": "assigns to names of torch, Python or the C library",
    "reference-copied": "contains the reference's own forward, or names the class Model without defining it",
    "streams": "creates CUDA streams or takes them from a pool",
    "subprocess": "starts, stops or signals processes",
    "tensor-subclass": "makes a kind of tensor of its own, or overrides what a tensor does",
    "third-party": "imports or includes a kernel library other than torch, Triton and the compilers' own",
    "threads": "starts threads of its own, or host callbacks on a stream (OpenMP does not count)",
    "token-pasting": "makes names with the preprocessor's ## operator",
    "torch-compile": "calls torch.compile or torch.jit",
    "try-except-fallback": "goes on another way after an error, instead of reporting it",
}

#: Rule classes that are refused whatever the policy, the gravest first, and what to do instead.
REFUSALS = {
    "frames": "looking at stack frames, live objects or modules that other code loaded; "
    "compute the result from the inputs and the weights alone",
    "patches-torch": "changing torch, Python or the C library at run time; "
    "call what they offer, and keep changes to functions and classes of your own",
    "exec": "running a decoded text as code; write the code out in the file",
    "network": "opening connections or downloading; the file must contain everything it needs",
    "subprocess": "starting, stopping or signalling processes; "
    "build C++ and CUDA with torch.utils.cpp_extension.load_inline",
    "token-pasting": "names of system or CUDA functions put together from pieces; write the whole name",
    "foreign-library": "access to the process's memory through system calls; take the tensors' data_ptr() instead",
}


@dataclass(slots=True)
class Marks:
    """What was seen in one kernel so far; the rules add to it."""

    tags: set[str] = field(default_factory=set)
    #: Keys of `REFUSALS`.
    refused: set[str] = field(default_factory=set)
    #: Names of library operations as a reader would recognise them, in the order seen.
    heavy: dict[str, None] = field(default_factory=dict)
    light: dict[str, None] = field(default_factory=dict)
    #: Whether any code is the kernel's own: Triton, C++, CUDA, or a call of a builder.
    own_kernel: bool = False
    #: Whether it loads a shared library.
    loads_library: bool = False
    #: Whether text that could not be read here is run as code, and whether anything is decoded.
    runs_text: bool = False
    decodes: bool = False

    def tag(self, name: str) -> None:
        """Note a tag that has honest uses."""
        assert name in TAGS, name
        self.tags.add(name)

    def refuse(self, name: str) -> None:
        """Note what has no honest use; the class is a tag as well."""
        assert name in REFUSALS, name
        self.tags.add(name)
        self.refused.add(name)

    def operation(self, kind: str, name: str) -> None:
        """Note a library operation: `kind` is "heavy" or "light"; anything else is no computation."""
        if kind == "heavy":
            self.tags.add("library-heavy")
            self.heavy[name] = None
        elif kind == "light":
            self.tags.add("library-light")
            self.light[name] = None
