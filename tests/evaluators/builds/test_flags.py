"""The flags of honest kernels pass; those that run, read or write something else are refused by name."""

import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbevolve.evaluators.builds.flags import Tool, checked, is_plain
from kbevolve.evaluators.sandbox.build_protocol import BuildRefused


def _flags(text: str) -> tuple[str, ...]:
    """Flags with two blanks between them."""
    return tuple(re.split(r"  +|\n *", text.strip()))


HONEST = {
    Tool.CXX: _flags("""
    --param=max-unroll-times=4  --param inline-unit-growth=200  -fcf-protection=none  -fno-builtin-memcpy
    -O3  -O2  -Ofast  -O  -std=c++17  -std=gnu++20  -march=native  -mtune=native  -mavx2  -mfma  -mavx512f
    -mavx512bf16  -mamx-tile  -mprefer-vector-width=512  -march=x86-64-v3  -msse4.2  -mf16c  -ffast-math  -fopenmp
    -fopenmp-simd  -funroll-loops  -fPIC  -fno-math-errno  -ffp-contract=fast  -fno-trapping-math  -fassociative-math
    -ftree-vectorize  -fno-tree-vectorize  -fomit-frame-pointer  -fvisibility=hidden  -fstrict-aliasing
    -fno-strict-aliasing  -flto  -flto=auto  -fno-exceptions  -fvect-cost-model=unlimited  -finline-functions
    -finline-limit=1000  -fprefetch-loop-arrays  -fno-plt  -floop-nest-optimize  -fno-semantic-interposition
    -funsafe-math-optimizations  -ftemplate-depth=2048  -Wall  -Wextra  -Wno-psabi  -Werror=return-type  -w  -g  -g3
    -ggdb  -pthread  -pipe  -s  -DNDEBUG  -DBLOCK=128  -D BLOCK=128  -DX='(1 + 2)'  -DNAME="name"
    -DT=std::array<float,4>  -UX  -I.  -Iinclude  -I /usr/include  -isystem /usr/include  -O3 -march=native -fopenmp
    -m64
    """),
    Tool.NVCC: _flags("""
    -Xcompiler '-O3 -Wall'  --compiler-options "-fPIC -O3"  -cudart shared  -Xptxas "-v -O3"
    -O3  -O 3  --optimize=3  -std=c++17  --std c++17  -use_fast_math  --use_fast_math  -lineinfo  --generate-line-info
    -G  -g  -arch=sm_90a  -arch sm_80  --gpu-architecture=compute_90  -code=sm_90
    -gencode=arch=compute_90a,code=sm_90a  -gencode arch=compute_80,code=[sm_80,compute_80]  -arch=native
    --generate-code=arch=compute_100a,code=sm_100a  -gencode arch=compute_103f,code=sm_103f  -maxrregcount=64
    --maxrregcount 128  -Xptxas -v  -Xptxas=-O3  -Xptxas -O3,-v  -Xptxas -dlcm=ca  --ptxas-options=-v
    --ptxas-options=--verbose,--register-usage-level=10,--warn-on-local-memory-usage
    -Xptxas --allow-expensive-optimizations=true  -Xptxas --warn-on-spills  -Xptxas --def-load-cache=ca
    -Xcompiler -fPIC  -Xcompiler=-O3  --compiler-options '-fPIC'  -Xcompiler -Wall,-fopenmp  -Xcompiler -O3
    --expt-relaxed-constexpr  -expt-relaxed-constexpr  --expt-extended-lambda  --extended-lambda  --ftz=true
    -ftz=true  --prec-div=false  -prec-sqrt=false  --fmad=true  -fmad=false  -restrict  -extra-device-vectorization
    --threads 4  -t=4  --threads=8  --default-stream per-thread  -w  -v  -Xcudafe --diag_suppress=177
    -diag-suppress 177,20012  --diag-suppress=20014  -Wno-deprecated-gpu-targets  -Xfatbin -compress-all
    -U__CUDA_NO_HALF_OPERATORS__  -DBLOCK=128  -Iinclude  --resource-usage  -m64  -lcublas  -lcuda  -rdc=true  --keep
    -DCUTLASS_ENABLE_TENSOR_CORE_MMA=1  --forward-unknown-to-host-compiler  --split-compile=4
    --allow-unsupported-compiler  -Werror all-warnings  -I/usr/local/cuda/include
    """),
    Tool.LINKER: _flags("""
    -lcublas  -lcublasLt  -lcudnn  -lcuda  -lcudart  -lnvrtc  -lcusparse  -lcufft  -l cuda  -lm  -lopenblas  -lmkl_rt
    -lmkl_intel_lp64  -lgomp  -lpthread  -fopenmp  -pthread  -O3  -ldl  -lrt  -L/usr/lib  -L /usr/lib
    -Wl,-rpath,/usr/lib  -Wl,--no-as-needed  -Wl,-O1  -Wl,-z,now  -shared  -s  -Wl,--as-needed  -static-libstdc++
    -flto  -march=native  -lstdc++  -ltorch_cuda
    """),
}
#: Refused by each of the programs.
HOSTILE = (
    *_flags("""
    --param=x=own  --param own  -Xcompiler '-O3 -wrapper own'  -Xcompiler '-O3 -B .'  -Xptxas "-v -o own"
    -wrapper own  -wrapper  -Bown  -B own  -specs=own  --specs=own  -fplugin=own.so  -fplugin-arg-own-x  @own  own
    own.o  /usr/lib/own.so  -x c  -xassembler  -x  -o own  -oown  -include own  -imacros own  --include=own
    --imacros=own  -MD  -MF own  -MFown  -M  -MMD  -E  -S  -c  -fsyntax-only  -###  -I/root  -I/proc/self/cwd  -I..
    -Ia/../..  -I  -I ''  -isystem /root  -iquote /root  -iquote/root  -idirafter /tmp  -iprefix own  -isysroot own
    --sysroot=own  -nostdinc  -nostdlib  -nodefaultlibs  -fdump-tree-all  -fdump-tree-all=own  -save-temps
    -fprofile-use=own  -fprofile-generate  -fauto-profile=own  -fbranch-probabilities  --coverage  -fcallgraph-info
    -fstack-usage  -fopt-info=own  -fsave-optimization-record  -fmodules-ts  -fmodules  -fmodule-mapper=|own
    -fpch-preprocess  -fpreprocessed  -fdirectives-only  -fuse-ld=own  -fsanitize=address
    -fdiagnostics-add-output=own  -fself-test=own  -ffile-prefix-map=a=b  -Wl,-T,own  -Wl,@own  -Wl,own
    -Wl,--version-script=own  -Wl,-plugin,own  -Wl,-rpath,/root  -Wl,--wrap=x  -Wl,-Map=own  -Wl,-o,own
    -Wl,--dependency-file=own  -Wl,-init,own  -Wl,--just-symbols=own  -Wl,-dynamic-linker,x  -Wa,-MD,own  -Wa,@own
    -Wp,-MD,own  -Xlinker -T  -Xlinker  -Xassembler -MD  -Xpreprocessor own  -Town  -lown  -l:own.so  -l :own.so  -l
    -L/root  -L  -L/tmp  -e own  -u own  -z own  -Xclang own  -DX=$(own)  -DX=`own`  -DX=$HOME  -D  -D-x  -U
    -mllvm own  -fplugin-arg  -dumpspecs  -ccbin own  -ccbin=own  --compiler-bindir own  --compiler-bindir=own
    --options-file own  -optf own  --keep-dir own  --output-file own  --run  -run  -odir own  --dryrun  --ptx  -cubin
    --lib  -dlink  -Xptxas -o,own  -Xptxas --output-file=own  -Xptxas @own  -Xptxas own  -Xptxas
    --ptxas-options=--options-file  -Xcompiler -wrapper,own  -Xcompiler -B,own  -Xcompiler -Bown  -Xcompiler @own
    -Xcompiler  -Xcompiler ''  -Xcompiler -I,/root  -Xcompiler -Wa\\,@own  -Xcompiler=-specs=own
    --compiler-options=-fplugin=own  -Xnvlink own  -Xcompiler -O3,own  -Xcudafe --own  -Xfatbin own  -Xarchive own
    -gencode arch=own  -arch=own  -t 99  -I/usr/include,/root  -Xcompiler -Xlinker  --input-drive-prefix own
    --libdevice-directory=own  -ldir own  --nvvm-options=own  --cudart=own  -cudart own  --time own
    --dependency-output own  --  -
    """),
    *("-DX=a\nb", "-\n"),
)


def may_read(path: str) -> bool:
    return path.startswith("/usr/") or (bool(path) and not path.startswith("/") and ".." not in path.split("/"))


@pytest.mark.parametrize(("tool", "flag"), [(tool, flag) for tool, flags in HONEST.items() for flag in flags])
def test_honest_flags_are_allowed(tool: Tool, flag: str) -> None:
    assert checked([flag], tool, may_read) == tuple(shlex.split(flag))


@pytest.mark.parametrize("tool", Tool)
@pytest.mark.parametrize("flag", HOSTILE)
def test_other_flags_are_refused_by_name(tool: Tool, flag: str) -> None:
    with pytest.raises(BuildRefused, match="is not allowed for") as refused:
        checked([flag], tool, may_read)
    assert str(tool) in str(refused.value)
    with pytest.raises(BuildRefused):
        checked(["-O3", *flag.split(" ")], tool, may_read)
    with pytest.raises(BuildRefused):
        checked([f"-O3 {flag}"], tool, may_read)


@pytest.mark.parametrize(
    "flag", ["-DX=1", "-I.", "-UX", "-lm", "-include x", "-isystem /usr/include", "-Wl,-s", "-shared"]
)
def test_with_these_no_header_is_precompiled(flag: str) -> None:
    assert not is_plain(flag)


#: What a compiler would take for a program, a file, or another list of flags.
FORBIDDEN = re.compile(r"^(?:[^-]|-$|--$)|wrapper|specs|plugin|^-B|^-o|ccbin|bindir|options-file|^@|[`$\n]|^-x|-run$")


@given(
    st.lists(
        st.one_of(
            st.sampled_from([word for flags in HONEST.values() for flag in flags for word in flag.split(" ")]),
            st.sampled_from([word for flag in HOSTILE for word in flag.split(" ")]),
            st.text("-=,./@ABIDLMOTWXabcdefilnopstuwx09_'\"\\ $`", max_size=12),
        ),
        max_size=4,
    ),
    st.sampled_from(Tool),
)
@settings(max_examples=500)
@pytest.mark.slow
def test_nothing_else_slips_through(words: list[str], tool: Tool) -> None:
    try:
        allowed = checked(words, tool, may_read)
    except BuildRefused:
        return
    values = {"-I", "-L", "-D", "-U", "-l", "-isystem", "-iquote", "-idirafter", "--param"}
    separate = values if tool is not Tool.NVCC else values | {word for word in allowed if word.startswith("-")}
    for before, word in zip(("", *allowed), allowed, strict=False):
        if before not in separate:
            assert not FORBIDDEN.search(word), (before, word)
