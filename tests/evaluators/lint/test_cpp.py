"""C++ without comments, strings and directives, and with one level of its macros expanded."""

import pytest

from kbevolve.evaluators.lint.cpp import CppReader
from kbevolve.evaluators.lint.marks import Marks


def marked(source: str) -> Marks:
    marks = Marks()
    CppReader(source, marks).read()
    return marks


@pytest.mark.parametrize(
    "source",
    [
        "at::mat\\\nmul(a, b);",
        "at /* b\n */ :: matmul // c\n(a, b);",
        'const char* s = "// not a comment"; at::matmul(a, b);',
        'const char* s = R"x(a )" b)x"; at::matmul(a, b);',
        "char c = '\"'; at::matmul(a, b);",
        "long n = 1'000'000; at::matmul(a, b);",
        "#define PRODUCT at::matmul\n",
        "#define PRODUCT(a, b) \\\n  at::matmul(a, b)\n",
        "#define CALL(name) at::name\nCALL(matmul)(a, b);",
        "#define CALL(a, b) at::a##b\nCALL(mat, mul)(a, b);",
        "%:define Q at\nQ::matmul(a, b);",
        "namespace q = at; q::matmul(a, b);",
        "using namespace at; matmul(a, b);",
        "at::Tensor a; a.matmul(b);",
        "auto f = &at::matmul;",
    ],
)
def test_a_product_is_seen(source: str) -> None:
    assert "library-heavy" in marked(source).tags


@pytest.mark.parametrize(
    "source",
    [
        "a // at::matmul(a, b) \\\n at::matmul(a, b)\nc",
        "a /* at::matmul(a, b);\n",
        'const char* s = "a\\"; at::matmul(a, b);";',
        'const char* s = R"x(at::matmul(a, b);)x";',
        "#include <at::matmul>\n#error at::matmul(a, b)\n",
        "namespace q = mine; q::matmul(a, b);",
        "void matmul(float* a) { a[0] = 1; } void run() { matmul(a); }",
    ],
)
def test_what_is_no_call_is_not(source: str) -> None:
    assert marked(source).tags == set()


def test_the_name_of_a_system_function_may_not_be_pasted() -> None:
    assert marked("#define P(a, b) a ## b\nP(cuda, Free)(p);").refused == {"token-pasting"}
    assert marked("#define P(a, b) a ## b\nP(kernel_, float)(p); cudaFree(p);").refused == set()


def test_headers() -> None:
    assert marked("#include <sys/socket.h>").refused == {"network"}
    assert marked('#include "cublas_v2.h"').tags == {"third-party"}
    assert marked("#include <cuda_fp16.h>\nhalf* a;").tags == {"half-types"}


@pytest.mark.parametrize(
    "source",
    [
        "#define F(x) " + "x " * 990 + "\n" + f"F({'a' * 1900})\n" * 900,
        "#define F(x) F(x) x ## x ## (\nF(F(F(1;)))) F( \n#define\n#include\n## # %:",
        "a" * 200_000,
        "a" + " *" * 100_000,
        "f(" * 60_000,
        '"' * 50_001 + 'R"(' * 30_000,
        "static " * 30_000,
        "##a" * 60_000,
        "#define a b\n" * 20_000,
    ],
    ids=range(9),
)
@pytest.mark.slow
def test_long_texts_are_read_soon(source: str) -> None:
    marked(source)
