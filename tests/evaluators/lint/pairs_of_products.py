"""Library products under other names, in Python and in C++, and kernels that only look like them."""

from tests.evaluators.lint.programs import TRITON, Pair, extension, model

PRODUCTS = {
    "alias of the module": Pair(
        tag="library-heavy",
        trick=model(top="import torch as t", forward="return t.mm(x, y)"),
        honest=model(top="import torch as t", forward="return t.empty(3)"),
    ),
    "alias of the function": Pair(
        tag="library-heavy",
        trick=model(top="from torch import mm as f", forward="return f(x, y)"),
        honest=model(top="from math import prod as f", forward="return f(x.shape)"),
    ),
    "alias by assignment": Pair(
        tag="library-heavy",
        trick=model(top="g = torch\nh = g.bmm", forward="k = h\nreturn k(x, y)"),
        honest=model(top="g = torch\nh = g.empty", forward="k = h\nreturn k(3)"),
    ),
    "star import": Pair(
        tag="library-heavy",
        trick=model(top="from torch import *", forward="return matmul(x, y)"),
        honest=model(top="from torch import *\n\ndef matmul(a, b):\n    return a", forward="return matmul(x, y)"),
    ),
    "getattr with parts": Pair(
        tag="library-heavy",
        trick=model(forward='return getattr(torch, "m" + "m")(x, y)'),
        honest=model(forward='return torch.empty(2, dtype=getattr(torch, "float" + "32"))'),
    ),
    "getattr with a computed name": Pair(
        tag="library-heavy",
        trick=model(forward='return getattr(torch, "".join(["mat", "mul"]))(x, y)'),
        honest=model(forward='return torch.empty(getattr(self, "".join(["si", "ze"])))'),
    ),
    "dictionary of the module": Pair(
        tag="library-heavy",
        trick=model(forward='return torch.__dict__["mm"](x, y)'),
        honest=model(forward='return {"mm": torch.empty}["mm"](3)'),
    ),
    "vars": Pair(
        tag="library-heavy",
        trick=model(forward='return vars(torch)["mm"](x, y)'),
        honest=model(forward='return vars(torch)["empty"](3)'),
    ),
    "imported by a function": Pair(
        tag="library-heavy",
        trick=model(forward='return __import__("tor" + "ch").mm(x, y)'),
        honest=model(forward='return __import__("tor" + "ch").empty(3)'),
    ),
    "importlib": Pair(
        tag="library-heavy",
        trick=model(
            top="import importlib", forward='return importlib.import_module("torch.nn.functional").linear(x, y)'
        ),
        honest=model(top="import importlib", forward='return importlib.import_module("math").prod(x.shape)'),
    ),
    "dispatcher": Pair(
        tag="library-heavy",
        trick=model(forward="return torch.ops.aten.mm.default(x, y)"),
        honest=model(top='torch.ops.load_library("own.so")', forward="return torch.ops.own.mm.default(x, y)"),
    ),
    "operator": Pair(
        tag="library-heavy",
        trick=model(forward="return x @ y"),
        honest=model(top=TRITON.replace("tl.load(x + at, mask=at < n)", "tl.load(x) @ tl.load(y)")),
    ),
    "operator in place": Pair(
        tag="library-heavy", trick=model(forward="x @= y\nreturn x"), honest=model(forward="n = 3\nn *= 2\nreturn x")
    ),
    "operator by its method": Pair(
        tag="library-heavy",
        trick=model(forward="return x.__matmul__(y)"),
        honest=model(forward="return x.__getitem__(0)"),
    ),
    "method": Pair(
        tag="library-heavy",
        trick=model(forward="return x.matmul(y)"),
        honest=extension("void run() {}", forward="return EXT.matmul(x, y)"),
    ),
    "method of something unknown": Pair(
        tag="library-heavy",
        trick=model(top="def f(a):\n    return a.bmm(a)", forward="return f(*self.args)"),
        honest=model(
            top="import ctypes\n\ndef build():\n    return ctypes.CDLL(str(PATH))\n\nMATMUL = build().matmul",
            forward="return MATMUL(x, y)",
        ),
    ),
    "method by name": Pair(
        tag="library-heavy",
        trick=model(top="import operator", forward='return operator.methodcaller("m" "m", y)(x)'),
        honest=model(top="import operator", forward='return operator.methodcaller("t")(x)'),
    ),
    "table of operations": Pair(
        tag="library-heavy",
        trick=model(top="OPS = {'a': torch.mm}", forward="return OPS['a'](x, y)"),
        honest=model(top="OPS = {'a': torch.empty}", forward="return OPS['a'](3)"),
    ),
    "partial": Pair(
        tag="library-heavy",
        trick=model(
            top="from functools import partial",
            init="self.f = partial(torch.mm, out=None)",
            forward="return self.f(x, y)",
        ),
        honest=model(
            top="from functools import partial", init="self.f = partial(torch.empty, 3)", forward="return self.f()"
        ),
    ),
    "submodule": Pair(
        tag="library-heavy",
        trick=model(init="self.l = nn.Linear(3, 3)", forward="return self.l(x)"),
        honest=model(init="self.l = nn.Linear(3, 3)", forward="return self.l.weight"),
    ),
    "submodule in a container": Pair(
        tag="library-heavy",
        trick=model(init="self.s = nn.Sequential(nn.Linear(3, 3))", forward="return self.s(x)"),
        honest=model(init="self.s = nn.Sequential(nn.Linear(3, 3))", forward="return self.s[0].weight"),
    ),
    "submodule handed to a helper": Pair(
        tag="library-heavy",
        trick=model(
            top="def f(m, a):\n    return m(a)", init="self.c = nn.Conv2d(3, 3, 1)", forward="return f(self.c, x)"
        ),
        honest=model(
            top="def f(m, a):\n    return m.weight", init="self.c = nn.Conv2d(3, 3, 1)", forward="return f(self.c, x)"
        ),
    ),
    "inherited forward": Pair(
        tag="library-heavy",
        trick="import torch.nn as nn\n\n\nclass ModelNew(nn.Linear):\n    pass\n",
        honest=model().replace("(nn.Module)", "(nn.Linear)"),
    ),
    "super's forward": Pair(
        tag="library-heavy",
        trick=model().replace("(nn.Module)", "(nn.Conv1d)").replace("return x", "return super().forward(x)"),
        honest=model().replace("(nn.Module)", "(nn.Conv1d)").replace("return x", "return super().extra_repr()"),
    ),
    "forward of a class": Pair(
        tag="library-heavy",
        trick=model(init="self.l = nn.Linear(3, 3)", forward="return nn.Linear.forward(self.l, x)"),
        honest=model(init="self.l = nn.Linear(3, 3)", forward="assert isinstance(self.l, nn.Linear)\nreturn x"),
    ),
    "helper of the file": Pair(
        tag="library-heavy",
        trick=model(top="def helper(a, b):\n    return torch.mm(a, b)", forward="return helper(x, y)"),
        honest=model(
            top="def fold(a, b):\n    return torch.mm(a, b)", init="self.w = fold(torch.ones(2, 2), torch.ones(2, 2))"
        ),
    ),
    "helper kept by the constructor": Pair(
        tag="library-heavy",
        trick=model(
            top="def helper(a, b):\n    return torch.mm(a, b)", init="self.f = helper", forward="return self.f(x, y)"
        ),
        honest=model(
            top="def helper(a, b):\n    return torch.mm(a, b)", init="self.w = helper(*FIRST)", forward="return self.w"
        ),
    ),
    "helper made by another": Pair(
        tag="library-heavy",
        trick=model(
            top="def make():\n    def helper(a, b):\n        return torch.mm(a, b)\n    return helper",
            init="self.f = make()",
            forward="return self.f(x, y)",
        ),
        honest=model(
            top="def make():\n    def helper(a, b):\n        return torch.mm(a, b)\n    return helper(*FIRST)",
            init="self.w = make()",
            forward="return self.w",
        ),
    ),
    "helper as a hook": Pair(
        tag="library-heavy",
        trick=model(
            top="def helper(module, given, out):\n    return torch.mm(*given)",
            init="self.register_forward_hook(helper)",
        ),
        honest=model(top="def helper(module, given, out):\n    return out", init="self.register_forward_hook(helper)"),
    ),
    "helper that is a generator": Pair(
        tag="library-heavy",
        trick=model(
            top="def helper():\n    c = None\n    while True:\n        c = torch.mm(*(yield c))",
            init="self.g = helper()\nnext(self.g)",
            forward="return self.g.send((x, y))",
        ),
        honest=model(
            top="def helper():\n    return torch.mm(*FIRST)",
            init="self.w = helper()",
            forward="return self.w",
        ),
    ),
    "after an integer division": Pair(
        tag="library-heavy",
        trick=model(forward="n = 4 // 2; return torch.matmul(x, y)"),
        honest=model(forward="n = 4 // 2  # torch.matmul(x, y)\nreturn x"),
    ),
    "after a hash in a string": Pair(
        tag="library-heavy",
        trick=model(forward="s = '#'; return torch.matmul(x, y)"),
        honest=model(forward="s = '# torch.matmul(x, y)'\nreturn x"),
    ),
    "numpy": Pair(
        tag="library-heavy",
        trick=model(top="import numpy as np", forward="return torch.from_numpy(np.dot(x.numpy(), y.numpy()))"),
        honest=model(top="import numpy as np", forward="return torch.empty(int(np.prod(x.shape)))"),
    ),
    "code run from text": Pair(
        tag="library-heavy",
        trick=model(forward="exec('import torch\\nz = torch.mm(x, y)')\nreturn x"),
        honest=model(forward="raise ValueError('write torch.mm(x, y) yourself; import torch\\n')"),
    ),
    "an elementwise operation": Pair(
        tag="library-light", trick=model(forward="return F.relu(x)"), honest=model(forward="return F")
    ),
    "arithmetic": Pair(
        tag="library-light",
        trick=model(forward="return x + y"),
        honest=model(forward="n = x.shape[0] + x.numel() // 2 * x.stride(0)\nreturn torch.empty(n)"),
    ),
    # C++ and CUDA.
    "C++ product": Pair(
        tag="library-heavy",
        trick=extension("torch::Tensor run(torch::Tensor a, torch::Tensor b) { return at::matmul(a, b); }"),
        honest=extension('// at::matmul(a, b)\n/* torch::mm */ void run() { const char* s = "at::matmul(a, b)"; }'),
    ),
    "C++ product with blanks": Pair(
        tag="library-heavy",
        trick=extension("auto run(T a) { return torch /* */ ::\n mm (a, a); }"),
        honest=extension("auto run(T a) { return mine::\n mm (a, a); }"),
    ),
    "C++ namespace alias": Pair(
        tag="library-heavy",
        trick=extension("namespace q = at; T run(T a) { return q::bmm(a, a); }"),
        honest=extension("namespace q = mine; T run(T a) { return q::bmm(a, a); }"),
    ),
    "C++ using namespace": Pair(
        tag="library-heavy",
        trick=extension("using namespace torch; T run(T a) { return matmul(a, a); }"),
        honest=extension("using namespace torch; void matmul(float* a) {} void run(float* a) { matmul(a); }"),
    ),
    "C++ method": Pair(
        tag="library-heavy",
        trick=extension("at::Tensor run(at::Tensor a) { return a.mm(a); }"),
        honest=extension("float run(Matrix a) { return a.row(0).dot(a); }"),
    ),
    "C++ macro": Pair(
        tag="library-heavy",
        trick=extension("#define GO at::mat\\\nmul\nT run(T a) { return GO(a, a); }"),
        honest=extension("#define GO mine::mat\\\nmul\nT run(T a) { return GO(a, a); }"),
    ),
    "C++ macro of the command line": Pair(
        tag="library-heavy",
        trick=extension("T run(T a) { return GO(a, a); }", keywords=", extra_cflags=['-DGO=at::matmul']"),
        honest=extension("T run(T a) { return a[GO]; }", keywords=", extra_cflags=['-DGO=64']"),
    ),
    "C++ through the dispatcher": Pair(
        tag="library-heavy",
        trick=extension('auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");'),
        honest=extension('TORCH_LIBRARY(own, m) { m.def("mm(Tensor a) -> Tensor"); }'),
    ),
    "C++ through Python": Pair(
        tag="library-heavy",
        trick=extension('auto run(py::object a) { return py::module::import("torch").attr("matmul")(a, a); }'),
        honest=extension('PYBIND11_MODULE(ext, m) { m.def("matmul", &run); }'),
    ),
    "cuBLAS": Pair(
        tag="library-heavy",
        trick=extension("void run() { cublasLtMatmul(h, d, 0, A, a, B, b, 0, C, c, C, c, 0, w, n, s); }"),
        honest=extension("void run() { matmul_like_cublas(0); }  // cublasSgemm"),
    ),
    "cuBLAS by its file": Pair(
        tag="library-heavy",
        trick=model(top="import ctypes\nLIB = ctypes.CDLL('libcublasLt.so.12')", forward="LIB.go()\nreturn x"),
        honest=model(top="import ctypes\nNAME = 'libcublasLt.so.12 is not used'", forward="return x"),
    ),
    "source in parts": Pair(
        tag="library-heavy",
        trick=model(top="A = 'T run(T a) { return at::ma'\nB = A + 'tmul(a, a); }'\nC = B"),
        honest=model(top="A = 'T run(T a) { return mine::ma'\nB = A + 'tmul(a, a); }'\nC = B"),
    ),
    "source in an f-string": Pair(
        tag="library-heavy",
        trick=model(top="OP = 'matmul'\nC = f'T run(T a) {{ return at::{OP}(a, a); }}'\nD = C"),
        honest=model(top="OP = 'matmul'\nC = f'T run(T a) {{ return own::{OP}(a, a); }}'\nD = C"),
    ),
    "source in documentation": Pair(
        tag="library-heavy",
        trick=model(
            top="def f():\n    '''T run(T a) { return at::matmul(a, a); }'''",
            forward="return build(f.__doc__)",
        ),
        honest=model(top="def f():\n    '''T run(T a) { return at::matmul(a, a); }'''", forward="return f()"),
    ),
}
