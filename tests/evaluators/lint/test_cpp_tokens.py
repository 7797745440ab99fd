"""C++ as the compiler sees it: comments, continued lines, strings, macros, pasting."""

import pytest

from kbevolve.evaluators.lint.cpp_tokens import preprocess, tokens


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a // b \\\n still a comment\nc", "a c"),
        ("a /* b\n */ c /* open", "a c"),
        ("mat\\\nmul", "matmul"),
        ('"a // b" c', '"a // b c'),
        ('R"x(a )" b)x" c', '"a )" b c'),
        (r'"a\"b" c', r'"a\"b c'),
        ("'\"' a", '" a'),
        (r"\u0063uda x", "cuda x"),
        ("1'000.5e+3f a", "1'000.5e+3f a"),
        ("a<<<1>>>b->c::d", "a <<< 1 >>> b -> c :: d"),
    ],
)
def test_tokens(source: str, expected: str) -> None:
    assert " ".join(text for text, _ in tokens(source) if text != "\n").strip() == expected.strip()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#define N 4\nint a[N];", "int a [ 4 ] ;"),
        ("#define F (x)\nF", "( x )"),
        ("#define F(x) g(x)\nF(1, 2) F", "g ( 1 ) F"),
        ("#define P(a, b) a##b\nP(cuda, Free)(p)", "cudaFree ( p )"),
        ("#define P(a, b) a##b\n#define Q(a, b) P(a, b)\nQ(x, y)", "xy"),
        ("#define V(f, ...) f(__VA_ARGS__)\nV(g, 1, 2)", "g ( 1 , 2 )"),
        ("#define S(x) f(#x)\nS(a b)", "f ( a b )"),
        ("#define X X + 1\nX", "X + 1"),
        ("#define A B\n#define B A\nA", "A"),
        ("%:define N 4\nN", "4"),
        ("#if 1\n#define N a\n#else\n#define N b\n#endif\n", "a ; b ;"),
        ("#define M(x) x\nM(\n  a\n)", "a"),
        ("#pragma omp parallel\na", "a"),
    ],
)
def test_macros(source: str, expected: str) -> None:
    """The last line of each text; before it, the bodies of the macros are program text as well."""
    words = preprocess(source).tokens
    assert [word.lstrip('"') for word in words][-len(expected.split()) :] == expected.split()


def test_includes_and_pasted_names() -> None:
    read = preprocess('#include <cuda_fp16.h>\n#include "own.h"\n#define K(n) kernel_##n\nK(a);')
    assert read.includes == {"cuda_fp16.h", "own.h"}
    assert read.pastes
    assert read.pasted == {"kernel_a"}
