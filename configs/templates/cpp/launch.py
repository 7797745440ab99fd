FLAGS = ["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]


def build(name: str) -> ctypes.CDLL:
    """Compile SOURCE in torch's extension folder and load it; the hash in the path keeps every variant apart."""
    key = hashlib.sha256("\n".join([SOURCE, *FLAGS]).encode()).hexdigest()[:16]
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    folder = Path(root) / f"{name}_{key}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.cpp"
    if not file.exists():
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".draft", delete=False) as draft:
            draft.write(SOURCE)
        os.replace(draft.name, file)  # whole or not at all, should two processes build the same variant
    cpp_extension.load(
        name=f"{name}_{key}",
        sources=[str(file)],
        extra_cflags=FLAGS,
        extra_ldflags=["-fopenmp"],
        build_directory=str(folder),
        is_python_module=False,
        verbose=False,
    )
    return ctypes.CDLL(str(folder / f"{name}_{key}.so"))


LIBRARY = build("regions")


def launch(name, reads, makes):
    """Call a function of SOURCE with tensors of the shapes and strides that it was written for; what it makes."""
    pointers, kept = [], []
    for tensor, shape, stride in reads:
        if tensor.shape != shape or tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            raise TypeError(
                f"{name} takes fp32 of {shape} on the CPU, not {tensor.dtype} of {tuple(tensor.shape)} on {tensor.device}"
            )
        if tensor.stride() != stride:
            tensor = torch.empty_strided(shape, stride).copy_(tensor)
        kept.append(tensor)
        pointers.append(ctypes.c_void_p(tensor.data_ptr()))
    made = [torch.empty_strided(shape, stride) for shape, stride in makes]
    pointers += [ctypes.c_void_p(tensor.data_ptr()) for tensor in made]
    getattr(LIBRARY, name)(*pointers, ctypes.c_int(torch.get_num_threads()))
    return made[0] if len(made) == 1 else made
