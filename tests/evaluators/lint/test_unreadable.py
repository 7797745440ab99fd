"""Code that the lint cannot read is refused, unless the policy allows it; code that it can read is not."""

import pytest

from kbevolve.evaluators.lint import lint
from tests.evaluators.lint.programs import TRITON, extension, model

#: What a kernel may do at import to run code that cannot be read; DATA is some bytes.
UNREADABLE = (
    "exec(bytes(DATA).decode())",
    "exec(''.join(map(chr, DATA)))",
    "eval('%s(1)' % open('/etc/hostname').read())",
    "exec('a = {}'.format(DATA))",
    "exec(TEXT := bytes(DATA).decode())",
    "e = exec\ne(str(DATA))",
    "list(map(exec, [str(DATA)]))",
    "import functools\nfunctools.partial(eval, str(DATA))()",
    "import builtins as b\ngetattr(b, 'ex' + 'ec')(str(DATA))",
    "import builtins as b\ngetattr(b, bytes(DATA).decode())('import os')",
    "vars(__builtins__)[str(DATA)]('x = 1')",
    "__builtins__[str(DATA)]('x = 1')",
    "__builtins__.__dict__.get('exec')(str(DATA))",
    "import sys\nsys.modules['builtins'].exec(str(DATA))",
    "globals()['__builtins__']['exec'](str(DATA))",
    "def f(text, run=exec):\n    run(text)\nf(str(DATA))",
    "import threading\nthreading.Timer(0, exec, [str(DATA)])",
    "import torch\nopen('l.so', 'wb').write(DATA)\ntorch.ops.load_library('l.so')",
    "import runpy\nwith open('m.py', 'w') as file:\n    print(str(DATA), file=file)\nrunpy.run_path('m.py')",
    "import ctypes\nctypes.CDLL(None)['mmap'](0, 4096, 7, 34, -1, 0)",
    "import sys\nsys.modules[str(DATA)].run()",
    "import enum\nenum.bltns.exec(str(DATA))",
    "print.__self__.exec(str(DATA))",
    "import operator, builtins\noperator.attrgetter('exec')(builtins)(str(DATA))",
    "import importlib\nimportlib.import_module('builtins').exec(str(DATA))",
    "code = compile(str(DATA), 'f', 'exec')\nexec(code)",
    "exec(compile(source=str(DATA), filename='f', mode='exec'))",
    "import ast\nexec(compile(ast.Module([], []), 'f', 'exec'))",
    # A name that is constant only at first sight.
    "S = 'pass'\nS += str(DATA)\nexec(S)",
    "S = 'pass'\nglobals()['S'] = str(DATA)\nexec(S)",
    "S = 'pass'\nexec('S = str(DATA)')\nexec(S)",
    "import sys\nS = 'pass'\nsetattr(sys.modules[__name__], 'S', str(DATA))\nexec(S)",
    "S = 'pass'\nif DATA:\n    S = str(DATA)\nexec(S)",
    "def f():\n    S = 'pass'\n    def g():\n        nonlocal S\n        S = str(DATA)\n    g()\n    exec(S)\nf()",
    "def f(text='pass'):\n    exec(text)\nf(str(DATA))",
    "match DATA:\n    case S:\n        exec(S)",
    "exec(*[str(DATA)])",
    # Readable text that runs what is not.
    "exec('exec(str(DATA))')",
    "exec('import marshal; exec(marshal.loads(DATA))')",
    "exec(b'# coding: utf-7\\nx = 1')",
    # Code objects.
    "import marshal\nexec(marshal.loads(DATA))",
    "import importlib\nimportlib.import_module('mar' + 'shal').loads(DATA)",
    "import importlib\nimportlib.import_module(str(DATA)).loads(DATA)",
    "__import__(str(DATA))",
    "import types\nf = types.FunctionType(types.CodeType(0), {})",
    "def f(): pass\nf.__code__ = f.__code__.replace(co_code=DATA)",
    "def f(): pass\nsetattr(f, '__code__', DATA)",
    "def f(): pass\ntype(f)(getattr(f, '__code__'), {})",
    "import pickle\npickle.loads(DATA)",
    "import timeit\ntimeit.timeit(str(DATA))",
    "import code\ncode.InteractiveInterpreter().runsource(str(DATA))",
    # Files that it writes itself.
    "import importlib.util as u\nopen('m.py', 'w').write(str(DATA))\nu.spec_from_file_location('m', 'm.py')",
    "import sys\nfrom pathlib import Path\nPath('m.py').write_text(str(DATA))\nsys.path.insert(0, '.')\nimport m",
    "import runpy, os\nos.write(3, DATA)\nrunpy.run_path('m.py')",
    "import ctypes\nopen('l.so', 'wb').write(DATA)\nctypes.CDLL('./l.so')",
    "import sys, zipfile\nzipfile.ZipFile('m.zip', 'w').writestr('m.py', str(DATA))\nsys.path.append('m.zip')",
    "import sys, json\njson.dump(DATA, open('m.py', 'w'))\nsys.path.insert(0, '.')\nimport m",
    "import sys, logging\nlogging.basicConfig(filename='m.py')\nsys.path.append('.')\nimport m",
    "open('m.py', 'w').write(str(DATA))\ntorch.__path__.append('.')\nimport torch.m",
    "import mmap, sys\nmmap.mmap(3, 9)[:2] = bytes(DATA)\nsys.path.append('.')\nimport m",
    "import ctypes\ntorch.from_file('l.so', shared=True, size=2)[:] = DATA\nctypes.CDLL('./l.so')",
    "from importlib.machinery import PathFinder\nopen('m.py', 'w').write(str(DATA))\nPathFinder.find_spec('m', ['.'])",
    "open('m.py', 'w').write(str(DATA))\ntype(__loader__)('m', 'm.py').load_module()",
    # Objects that are read back, and modules that run what they are given.
    "import io\ntorch.load(io.BytesIO(bytes(DATA)), weights_only=False)",
    "import io, numpy\nnumpy.load(io.BytesIO(bytes(DATA)), allow_pickle=True)",
    "import io, numpy\nnumpy.load(io.BytesIO(bytes(DATA)), **{'allow_pickle': True})",
    "torch.serialization.pickle.loads(bytes(DATA))",
    "from multiprocessing.reduction import ForkingPickler\nForkingPickler.loads(bytes(DATA))",
    "import shelve\nshelve.open('x')['f']()",
    "import sympy\nsympy.Symbol('x') + str(DATA)",
    "import timeit\ntimeit.main(['-n1', str(DATA)])",
    "from torch.utils.benchmark import Timer\nTimer(str(DATA)).timeit(1)",
    "import torch.fx\ntorch.fx.GraphModule({}, torch.fx.Graph())",
    "import builtins\nmatch builtins:\n    case object(exec=run):\n        run(str(DATA))",
    # Machine code.
    "import mmap\nm = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    "import mmap\nm = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, 7)",
    "import mmap\nm = mmap.mmap(-1, 4096, prot=int(DATA[0]))",
    "import ctypes\nctypes.CFUNCTYPE(ctypes.c_int)(int(DATA[0]))()",
    "import ctypes\nF = ctypes.CFUNCTYPE(ctypes.c_int)\nf = F(int(DATA[0]))",
    "import ctypes\nF = ctypes.PYFUNCTYPE(ctypes.c_int)\nctypes.cast(int(DATA[0]), F)()",
    "import ctypes\nF = ctypes.CFUNCTYPE(ctypes.c_int)\nF.from_address(int(DATA[0]))()",
    "import ctypes\nctypes.CDLL(None).mmap(0, 4096, 7, 34, -1, 0)",
    "import ctypes\ngetattr(ctypes.CDLL(None), str(DATA))(0, 4096, 7, 34, -1, 0)",
    "import ctypes\nF = ctypes.CFUNCTYPE(None)\n(F * 1).from_buffer(bytearray(DATA))[0]()",
    "import ctypes\nclass S(ctypes.Structure):\n    _fields_ = [('f', ctypes.CFUNCTYPE(None))]\nS.from_address(1).f()",
    "import ctypes\nctypes.PyDLL(None).PyRun_SimpleString(DATA)",
    # Torch's and Triton's own ways.
    "torch.jit.CompilationUnit(str(DATA))",
    "import io\ntorch.jit.load(io.BytesIO(DATA))",
    "from torch._inductor.async_compile import AsyncCompile\nK = AsyncCompile().triton('k', str(DATA))",
    TRITON + "copy_kernel._unsafe_update_src(str(DATA))",
    TRITON + "copy_kernel.src = str(DATA)",
    "import triton\nspace = {}\nexec(str(DATA), space)\nkernel = triton.jit(space['kernel'])",
)

#: The same with text that is written out, and things that look alike.
READABLE = (
    "exec('x = 1')",
    "S = '''\ndef scale(x):\n    return x\n'''\nspace = {}\nexec(S, space)",
    "S = 'def scale(x): return x'\nexec(S, globals())",
    "exec(compile('x = 1', 'f', 'exec'), {'__builtins__': {}})",
    "import textwrap\nS = '''\n    x = 1\n'''\nexec(textwrap.dedent(S))",
    "N = 4\nexec(f'x = {4}' + '; y = 2')",
    "from torch._inductor.async_compile import AsyncCompile\nK = AsyncCompile().triton('k', '''import triton''')",
    "import re\nP = re.compile(str(DATA))",
    "import os\nn = getattr(os, 'cpu_count')()",
    "import sys\nM = sys.modules[__name__]",
    "import math\nf = getattr(math, str(DATA), None)",
    "import ctypes\n@ctypes.CFUNCTYPE(None, ctypes.c_int)\ndef callback(n):\n    pass",
    "import ctypes\nF = ctypes.CFUNCTYPE(None, ctypes.c_int)\ncallback = F(lambda n: None)",
    "import ctypes\nv = (ctypes.c_float * 4).from_address(0)",
    "import mmap\nm = mmap.mmap(-1, 4096)\nk = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)",
    "import importlib.util as u\nopen('m.py', 'w').write('x = 1')\nu.spec_from_file_location('m', 'm.py')",
    "import ctypes\nfrom torch.utils.cpp_extension import load\nopen('k.cpp', 'w').write(str(DATA))\n"
    "L = ctypes.CDLL(load('k', ['k.cpp'], is_python_module=False))",
    "import sys\nsys.stdout.write(str(DATA))",
    "import importlib\nimportlib.import_module('math').prod((1, 2))",
    "import timeit\nt = timeit.timeit(lambda: None, number=1)\ns = timeit.default_timer()",
    "self_compile = torch.compile(lambda x: x)",
    "import base64\nTABLE = base64.b64decode('AAAA')",
    "import pickle, json\nK = json.loads('{}')",
    "import json, zipfile\njson.dump(DATA, open('plan.json', 'w'))",
    "W = torch.load('w.pt', weights_only=True)",
    "import numpy\nW = numpy.load('w.npy', allow_pickle=False)",
    "def backend(graph: torch.fx.GraphModule, inputs):\n    return graph",
    "import torch.utils.benchmark as b\nt = b.Timer('f()', globals={'f': len}, num_threads=DATA[0])",
    "match DATA:\n    case slice(start=0, stop=end):\n        pass",
    "import ctypes\nA = ctypes.c_float * 4\nclass S(ctypes.Structure):\n    _fields_ = [('n', ctypes.c_int), ('x', A)]",
    "import ctypes\nF = ctypes.CFUNCTYPE(None, ctypes.c_int)\nL = ctypes.CDLL(str(DATA))\nL.f.argtypes = (F,)",
)


@pytest.mark.parametrize("top", UNREADABLE, ids=range(len(UNREADABLE)))
def test_unreadable_code_is_refused_unless_it_is_allowed(top: str) -> None:
    source = model(top=f"DATA = [1, 2]\n{top}")
    found = lint(source)
    assert "unreadable" in found.tags
    assert found.refusal.startswith("not accepted: ")
    allowed = lint(source, allow_unreadable=True)
    assert allowed.tags == found.tags
    assert "running code that cannot be read" not in allowed.refusal


@pytest.mark.parametrize("top", READABLE, ids=range(len(READABLE)))
def test_readable_code_is_read(top: str) -> None:
    found = lint(model(top=f"DATA = [1, 2]\n{top}"))
    assert "unreadable" not in found.tags
    assert found.refusal == ""


@pytest.mark.parametrize(
    "source",
    [
        "# coding: utf-7\nx = 1",
        "#!/usr/bin/python\n# -*- coding: unicode_escape -*-\nx = 1",
        extension("void run() { char* code = map(0, 4096, PROT_READ | PROT_EXEC); }"),
        extension('void run() { asm volatile(".byte 0x0f, 0x05"); }'),
        extension('void run() { asm volatile("nop\\n\\t.2byte 0x050f"); }'),
        extension('#define A "sys" "call"\n#define B ".oc" "ta 5"\nvoid run() { asm(B); }'),
        extension('__attribute__((section(".text"))) const char code[] = {1};'),
        extension("void run() { mmap(nullptr, size(1, 2), 3 | 4, MAP_PRIVATE, -1, 0); }"),
        extension("void run() { mmap(nullptr, 4096, protection, MAP_PRIVATE, -1, 0); }"),
        extension('void run() { py::module_::import("builtins").attr("exec")("x"); }'),
        extension("#include <Python.h>\nvoid run(const char* text) { PyRun_SimpleString(text); }"),
        extension("void run(std::string text) { pybind11::exec(text); }"),
    ],
    ids=range(12),
)
def test_other_encodings_and_native_code_made_at_run_time_are_unreadable(source: str) -> None:
    assert lint(source).refusal.startswith("not accepted: running code that cannot be read")
    assert "unreadable" in lint(source).tags


@pytest.mark.parametrize(
    "source",
    [
        "# -*- coding: utf-8 -*-\nx = 1",
        "x = 1\n# coding: utf-7",
        extension('void run() { asm volatile("mma.sync.aligned.m16n8k8.b32 %0;"); int bytes = PROT_READ; }'),
        extension('void run() { asm("{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, %0, 0;\\n}"); CHECK(x, ".float"); }'),
        extension("void run() { mmap(nullptr, round(n, 4), PROT_READ | PROT_WRITE, MAP_PRIVATE, -1, 0); }"),
    ],
    ids=range(5),
)
def test_usual_encodings_and_assembly_are_readable(source: str) -> None:
    assert lint(source).refusal == ""


def test_what_a_constant_text_does_counts() -> None:
    found = lint(model(top="S = 'z = torch.mm'\nexec(S)", forward="exec('(lambda: torch.bmm(x, y))()')"))
    assert {"exec", "library-heavy"} <= set(found.tags)
    assert lint(model(top="exec('import sys; sys._getframe(1)')")).refusal
