"""Which names of torch (and of its rivals) compute, and how much: a product is heavy, a ReLU light, a view nothing.

Everything is told by name: the lint does not import torch. A function of torch that is not known to be free counts as
light, so that a new operation is noticed rather than overlooked.
"""

import re
from functools import lru_cache

from kbevolve.evaluators.lint.words import words

#: Products, convolutions, attention, recurrences, factorisations: what a kernel would be written for.
HEAVY = words(
    """
    mm matmul bmm addmm addbmm baddbmm addmv mv dot vdot inner einsum tensordot chain_matmul multi_dot linear
    bilinear hspmm hsmm dsmm smm spmm saddmm sspaddmm _int_mm _scaled_mm _grouped_mm scaled_mm grouped_mm kron
    cov corrcoef cdist _cdist_forward matrix_exp matrix_power convolution _convolution conv1d conv2d conv3d
    conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d slow_conv3d thnn_conv2d cudnn_convolution
    cudnn_convolution_transpose cudnn_convolution_relu mkldnn_convolution miopen_convolution
    scaled_dot_product_attention multi_head_attention_forward flex_attention lstm gru rnn_tanh rnn_relu
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell svd svd_lowrank pca_lowrank qr geqrf inv inverse pinverse
    pinv cholesky cholesky_inverse cholesky_solve triangular_solve solve solve_triangular lstsq lu lu_solve
    lu_factor eig eigh eigvals eigvalsh det slogdet logdet lobpcg symeig orgqr ormqr stft istft convolve
    correlate gemm mkldnn_linear addmm_activation _addmm_activation mkldnn_rnn_layer miopen_rnn
"""
)
#: Their many variants: cudnn_convolution_add_relu, quantized_lstm_cell, _scaled_dot_product_flash_attention, …
_HEAVY_NAME = re.compile(
    r"\w*convolution|quantized_(lstm|gru|rnn)|_?fbgemm_linear|mkldnn_linear|\w*attention(?!_mask)|fft_"
)

#: Methods that give a tensor without computing: allocation, views, copies, conversions.
PRODUCES = words(
    """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like new_zeros ones
    ones_like new_ones full full_like new_full new_tensor arange eye zero_ fill_ tensor as_tensor asarray
    from_numpy frombuffer from_blob scalar_tensor to cpu cuda type float double half bfloat16 int long short
    char byte bool type_as clone copy_ contiguous detach detach_ view view_as reshape reshape_as flatten ravel
    unflatten squeeze squeeze_ unsqueeze unsqueeze_ expand expand_as broadcast_to broadcast_tensors permute
    transpose transpose_ t t_ swapaxes swapdims movedim moveaxis T mT H mH adjoint narrow select split
    split_with_sizes tensor_split chunk unbind hsplit vsplit dsplit diagonal as_strided as_strided_ unfold
    view_as_real view_as_complex real imag conj resolve_conj resolve_neg data grad requires_grad_ pin_memory
    share_memory_ set_ resize_ resize_as_ atleast_1d atleast_2d atleast_3d values indices from_dlpack
    refine_names align_to rename record_stream _reinterpret_tensor reinterpret_tensor alias _empty_strided_cpu
    _empty_strided_cuda _unsafe_view numpy __getitem__ __setitem__
"""
)
#: Methods and attributes that tell about a tensor, and functions of torch that are no operations.
TELLS = words(
    """
    size stride shape dtype device layout dim ndim ndimension numel nelement nbytes element_size itemsize
    storage untyped_storage typed_storage storage_offset data_ptr const_data_ptr mutable_data_ptr _version item
    tolist is_cuda is_contiguous is_floating_point is_complex is_leaf grad_dtype output_nr
    retains_grad volatile name requires_grad is_sparse is_quantized
    is_shared is_pinned is_inference is_meta get_device names has_names backward register_hook retain_grad
    grad_fn __dlpack__ __dlpack_device__ __len__ __hash__ __class__ __dict__ __torch_function__ __init__ __new__
    _make_subclass _make_wrapper_subclass as_subclass qscheme apply_ map_ no_grad enable_grad inference_mode
    manual_seed seed initial_seed compile vmap finfo iinfo load save typename promote_types result_type can_cast
    broadcast_shapes compiled_with_cxx11_abi use_deterministic_algorithms autocast import_ir_module fork wait
    run_dtype_check cond export sym_int sym_max sym_min sym_not sym_float sym_ite sym_sum float16 float32
    float64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 int8 int16
    int32 int64 uint8 uint16 uint32 uint64 complex32 complex64 complex128 cfloat cdouble chalf qint8 qint32
    quint8 quint4x2 quint2x4 bits8 bits16 strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged
    channels_last channels_last_3d contiguous_format preserve_format legacy_contiguous_format per_tensor_affine
    per_channel_affine inf nan pi e newaxis
"""
)
_FREE_NAME = re.compile(r"(is|get|set|has)_|__|(u?int|bits|b?float)\d\w*$|bit$")
#: Methods that only a tensor has, or only means this: enough to know an object of unknown kind by.
DISTINCTIVE = words(
    """
    softmax log_softmax relu relu_ sigmoid sigmoid_ tanh tanh_ gelu silu erf rsqrt logsumexp cumsum cumprod
    layer_norm batch_norm group_norm softplus leaky_relu hardtanh clamp clamp_ clamp_min clamp_max masked_fill
    masked_fill_ amax amin
"""
)
#: Names too common to tell a tensor by, although they would be heavy on one.
_COMMON = words("dot inner solve lu det inv inverse convolve correlate qr linear gemm")
METHODS = HEAVY - _COMMON

#: Parts of torch without operations, unless a longer name below says otherwise.
_NEUTRAL = words(
    """
    cuda backends utils library jit autograd version distributed multiprocessing profiler random overrides fx
    export hub package testing types onnx serialization return_types classes storage accelerator mps xpu cpu
    mtia amp futures compiler monitor func __dict__ __config__ __future__ config optim masked torch_version
    functorch _VF _dynamo _inductor _functorch _logging _C _utils _tensor _prims_common _subclasses _guards _ops
    _library _higher_order_ops ops nn quantization ao Tensor Generator Size
"""
)
_OPERATIONS = re.compile(
    r"torch\.(?:nn\.functional|nn\.init|functional|_VF|special|sparse|signal\.windows|Tensor|_tensor\.Tensor|_refs"
    r"(?:\.nn\.functional|\.special)?|_C\._(?:nn|VariableFunctions|TensorBase|special|sparse)|nn\.attention\.flex_attention"
    r"|_inductor\.select_algorithm\.extern_kernels|_inductor\.kernel\.\w+|_C\._VariableFunctionsClass"
    r"|ops\.(?:aten|prims|mkldnn|mkldnn_prepacked|mkl|onednn|quantized|inductor|_quantized|sparse|torchvision|xformers))\.(\w+)"
)
_DECOMPOSITIONS = re.compile(r"torch\.(?:linalg|fft|_C\._linalg|_C\._fft)\.(\w+)")
#: Of torch.linalg and torch.fft: what is a reduction or an index table.
_LIGHT_LINALG = re.compile(r"(linalg_)?(norm|vector_norm|matrix_norm|vecdot|cross|diagonal|vander|\w*shift|\w*freq)")
_MODULES = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?([A-Z]\w*)(?:\.(?:forward|__call__|_call_impl|_conv_forward))?")
_HEAVY_MODULE = re.compile(
    r"(Lazy)?(Bil|L)inear|(Lazy)?Conv(Transpose)?\dd|Multihead\w+|Transformer\w*|(RNN|LSTM|GRU)(Cell|Base)?"
)
_FREE_MODULE = re.compile(
    r"Module|Parameter|Buffer|Uninitialized\w+|Identity|Flatten|Unflatten|ParameterList|ParameterDict"
    r"|Sequential|ModuleList|ModuleDict|DataParallel|Container"
)
#: Libraries of finished kernels, by the name they are imported under.
KERNEL_LIBRARIES = words(
    """
    flash_attn flash_attn_interface xformers fla vllm sgl_kernel flashinfer liger_kernel apex transformer_engine
    deep_gemm cupy cupyx jax jaxlib tensorflow scipy onnxruntime tensorrt torch_tensorrt tvm bitsandbytes
    causal_conv1d mamba_ssm cuml cudf cublas cudnn nvmath mlx paddle kornia torchvision torchaudio opt_einsum
    faiss sklearn
"""
)
_NUMPY = re.compile(r"numpy\.(?:linalg\.|fft\.|core\.multiarray\.)?(\w+)")


@lru_cache(maxsize=4096)
def weight_of(name: str) -> str:
    """How much a dotted name computes when it is called: "heavy", "light", or "" for nothing.

    For a class of torch.nn this says what calling its instances costs.
    """
    if not name.startswith("torch."):
        return _elsewhere(name)
    found = _MODULES.fullmatch(name)
    if found:
        if _FREE_MODULE.fullmatch(found[1]):
            return ""
        return "heavy" if _HEAVY_MODULE.fullmatch(found[1]) else "light"
    found = _DECOMPOSITIONS.match(name)
    if found:
        return "light" if _LIGHT_LINALG.fullmatch(found[1]) else "heavy"
    found = _OPERATIONS.match(name)
    if found:
        return operation_weight(found[1])
    first, _, rest = name.removeprefix("torch.").partition(".")
    if first in _NEUTRAL or (rest and rest not in {"default", "out"}):
        return ""
    if first[0].isupper() or first.startswith(("is_", "get_", "set_", "are_", "_")):
        return "heavy" if is_heavy(first) else ""
    return operation_weight(first)


def operation_weight(name: str) -> str:
    """The same for the bare name of an operation, as in ``torch.NAME``, ``tensor.NAME`` or ``at::NAME``."""
    if is_heavy(name):
        return "heavy"
    free = name in PRODUCES or name in TELLS or bool(_FREE_NAME.match(name))
    return "" if free and name not in _ARITHMETIC else "light"


#: Operators that may be called by their method's name.
_ARITHMETIC = frozenset(
    f"__{prefix}{name}__"
    for prefix in ("", "r", "i")
    for name in words("add sub mul truediv floordiv pow mod neg and or xor")
) | {"__matmul__", "__rmatmul__", "__imatmul__", "__abs__", "__invert__"}


def is_heavy(name: str) -> bool:
    """Whether the bare name of an operation is that of a heavy one."""
    if name in {"__matmul__", "__rmatmul__", "__imatmul__"}:
        return True
    return name in HEAVY or name.rstrip("_") in HEAVY or bool(_HEAVY_NAME.match(name))


def gives_tensor(name: str) -> bool:
    """Whether calling this dotted name gives a tensor (or several)."""
    if not name.startswith("torch."):
        return False
    last = name.rpartition(".")[2]
    if _MODULES.fullmatch(name):
        return last in {"Parameter", "Buffer", "forward"}
    return bool(weight_of(name)) or (last in PRODUCES and not name.startswith("torch.cuda."))


def _elsewhere(name: str) -> str:
    root = name.partition(".")[0]
    if root in KERNEL_LIBRARIES:
        return "heavy"
    if root == "numpy":
        found = _NUMPY.match(name)
        if name.startswith(("numpy.linalg.", "numpy.fft.")) and found:
            return "light" if _LIGHT_LINALG.fullmatch(found[1]) else "heavy"
        return "heavy" if found and (found[1] in HEAVY) else ""
    return "heavy" if name == "operator.matmul" else ""
