def cuda_library(function, source, flags, *arguments):
    """A source in CUDA C++, compiled and loaded, whose `function` takes arguments of these types of ctypes."""
    name = f"{function}_{hashlib.sha256((source + str(flags)).encode()).hexdigest()[:16]}"
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()) / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text(source)
    cpp_extension.load(name=name, sources=[str(folder / "kernel.cu")], extra_cuda_cflags=flags,
                       build_directory=str(folder), is_python_module=False, with_cuda=True)
    library = ctypes.CDLL(str(folder / f"{name}.so"))
    getattr(library, function).argtypes = arguments
    return library
