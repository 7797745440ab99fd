"""Which names of torch and other libraries compute, and how much: a product is heavy, a ReLU light, a view nothing.

The names alone decide: the lint does not import torch. A function of torch that is not known to be free counts as
light, so that the lint notices a new operation rather than overlooks it.
"""

import re
from functools import lru_cache

from kbevolve.evaluators.lint.words import words

#: Products, convolutions, attention, recurrences, factorisations: what a kernel would be written for.
HEAVY = words(
    """
    mm matmul bmm addmm addbmm baddbmm addmv mv dot vdot inner einsum tensordot chain_matmul multi_dot linear
    bilinear hspmm hsmm dsmm smm spmm saddmm sspaddmm _int_mm _scaled_mm _grouped_mm scaled_mm grouped_mm kron
    cov corrcoef cdist _cdist_forward matrix_exp matrix_power conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d slow_conv3d thnn_conv2d multi_head_attention_forward lstm gru rnn_tanh rnn_relu
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell svd svd_lowrank pca_lowrank qr geqrf inv inverse pinverse
    pinv cholesky cholesky_inverse cholesky_solve triangular_solve solve solve_triangular lstsq lu lu_solve
    lu_factor eig eigh eigvals eigvalsh det slogdet logdet lobpcg symeig orgqr ormqr stft istft convolve
    correlate gemm mkldnn_linear addmm_activation _addmm_activation mkldnn_rnn_layer miopen_rnn
    __matmul__ __rmatmul__ __imatmul__
"""
)
#: Their many variants: cudnn_convolution_add_relu, quantized_lstm_cell, _scaled_dot_product_flash_attention, …
_HEAVY_NAME = re.compile(
    r"\w*convolution|quantized_(lstm|gru|rnn)|_?fbgemm_linear|mkldnn_linear|\w*attention(?!_mask)|fft_"
)
#: Heavy on a tensor, but other objects have methods of these names as well.
COMMON = words("dot inner solve lu det inv inverse convolve correlate qr linear gemm")
#: Methods of light operations that objects other than tensors hardly have.
DISTINCTIVE = words(
    """
    softmax log_softmax relu relu_ sigmoid sigmoid_ tanh tanh_ gelu silu erf rsqrt logsumexp cumsum cumprod layer_norm
    batch_norm group_norm softplus leaky_relu hardtanh clamp clamp_ clamp_min clamp_max masked_fill masked_fill_ amax
    amin
"""
)

#: Functions and methods that give a tensor without computing: allocation, views, copies, conversions.
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
#: Methods and attributes that describe a tensor, and functions and constants of torch that are no operations.
DESCRIBES = words(
    """
    size stride shape dtype device layout dim ndim ndimension numel nelement nbytes element_size itemsize storage
    untyped_storage typed_storage storage_offset data_ptr const_data_ptr mutable_data_ptr _version item tolist
    grad_dtype output_nr retains_grad volatile name requires_grad names backward register_hook retain_grad grad_fn
    _make_subclass _make_wrapper_subclass as_subclass qscheme apply_ map_ no_grad enable_grad inference_mode
    manual_seed seed initial_seed compile vmap finfo iinfo load save typename promote_types result_type can_cast
    broadcast_shapes compiled_with_cxx11_abi use_deterministic_algorithms autocast import_ir_module fork wait
    run_dtype_check cond export sym_int sym_max sym_min sym_not sym_float sym_ite sym_sum cfloat cdouble chalf
    strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged channels_last channels_last_3d
    contiguous_format preserve_format legacy_contiguous_format per_tensor_affine per_channel_affine inf nan pi e
    newaxis
"""
)
_FREE_NAME = re.compile(r"(is|get|set|has)_|__|(u|q|qu|b)?(int|float|bits|complex)\d\w*$|bit$")
#: Operators called by the names of their methods.
_ARITHMETIC = re.compile(r"__[ri]?(add|sub|mul|truediv|floordiv|pow|mod|neg|and|or|xor|abs|invert)__")

#: Parts of torch without operations, unless one of the patterns below says otherwise.
_NEUTRAL = words(
    """
    cuda backends utils library jit autograd version distributed multiprocessing profiler random overrides fx
    export hub package testing types onnx serialization return_types classes storage accelerator mps xpu cpu
    mtia amp futures compiler monitor func config optim masked torch_version functorch nn linalg fft special sparse
    signal quantization ao ops functional Tensor Generator Size
    _VF _dynamo _inductor _functorch _logging _C _utils _tensor _prims_common _subclasses _guards _ops _library
    _higher_order_ops __dict__ __config__ __future__
"""
)
_OPERATIONS = re.compile(
    r"torch\.(?:nn\.functional|nn\.init|functional|_VF|special|sparse|signal\.windows|Tensor|_tensor\.Tensor|_refs"
    r"(?:\.nn\.functional|\.special)?|_C\._(?:nn|VariableFunctions|TensorBase|special|sparse)|nn\.attention\.flex_attention"
    r"|_inductor\.select_algorithm\.extern_kernels|_inductor\.kernel\.\w+|_C\._VariableFunctionsClass"
    r"|ops\.(?:aten|prims|mkldnn|mkldnn_prepacked|mkl|onednn|quantized|inductor|_quantized|sparse|torchvision|xformers))\.(\w+)"
)
_DECOMPOSITIONS = re.compile(r"(?:torch|numpy)\.(?:linalg|fft|_C\._linalg|_C\._fft)\.(\w+)")
#: Of linalg and fft: reductions and index tables.
_LIGHT_LINALG = re.compile(r"(linalg_)?(norm|vector_norm|matrix_norm|vecdot|cross|diagonal|vander|\w*shift|\w*freq)")
MODULE_CLASS = re.compile(r"torch\.nn\.(?:modules\.\w+\.)?([A-Z]\w*)(?:\.(forward|__call__|_call_impl|_conv_forward))?")
_HEAVY_MODULE = re.compile(
    r"(Lazy)?(Bil|L)inear|(Lazy)?Conv(Transpose)?\dd|Multihead\w+|Transformer\w*|(RNN|LSTM|GRU)(Cell|Base)?"
)
_FREE_MODULE = re.compile(
    r"Module|Parameter|Buffer|Uninitialized\w+|Identity|Flatten|Unflatten|Parameter(List|Dict)|Sequential"
    r"|Module(List|Dict)|DataParallel|Container"
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


@lru_cache(maxsize=4096)
def weight_of(name: str) -> str:
    """How much a dotted name computes when it is called: "heavy", "light", or "" for nothing.

    For a class of torch.nn: how much a call of its instances computes.
    """
    root, _, rest = name.partition(".")
    if root in KERNEL_LIBRARIES or name == "operator.matmul":
        return "heavy"
    if found := _DECOMPOSITIONS.match(name):
        return "light" if _LIGHT_LINALG.fullmatch(found[1]) else "heavy"
    if root == "numpy":
        return "heavy" if rest.rpartition(".")[2] in HEAVY else ""
    if root != "torch" or not rest:
        return ""
    if found := MODULE_CLASS.fullmatch(name):
        if _FREE_MODULE.fullmatch(found[1]):
            return ""
        return "heavy" if _HEAVY_MODULE.fullmatch(found[1]) else "light"
    if found := _OPERATIONS.match(name):
        return operation_weight(found[1])
    first, _, member = rest.partition(".")
    if first in _NEUTRAL or member not in {"", "default", "out"}:
        return ""
    if first[0].isupper() or first.startswith(("are_", "_")):
        return "heavy" if is_heavy(first) else ""
    return operation_weight(first)


def operation_weight(name: str) -> str:
    """The same for the bare name of an operation, as in ``torch.NAME``, ``tensor.NAME`` or ``at::NAME``."""
    if is_heavy(name):
        return "heavy"
    free = name in PRODUCES or name in DESCRIBES or _FREE_NAME.match(name)
    return "" if free and not _ARITHMETIC.fullmatch(name) else "light"


def is_heavy(name: str) -> bool:
    """Whether the bare name of an operation is that of a heavy one, in place or not."""
    return name in HEAVY or name.rstrip("_") in HEAVY or bool(_HEAVY_NAME.match(name))


def gives_tensor(name: str) -> bool:
    """Whether a call of this dotted name gives a tensor, or several."""
    last = name.rpartition(".")[2]
    if found := MODULE_CLASS.fullmatch(name):
        return found[2] is not None or found[1] in {"Parameter", "Buffer"}
    return name.startswith("torch.") and (
        bool(weight_of(name)) or (last in PRODUCES and not name.startswith("torch.cuda."))
    )
