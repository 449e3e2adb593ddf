"""Functions of torch's by name: those that a trial on random numbers can judge, and those that read no numbers at all.

A function can be judged if each entry of its result depends on the same entries of its arguments whatever the numbers
are: random numbers then show which. Those of the layer rules are among them, by their registry.
"""

from dataclasses import dataclass
from functools import cache

import torch

from fedfdp.privacy.clipping.layers.in_steps import IN_STEPS, WITH_WEIGHTS
from fedfdp.privacy.clipping.layers.registry import REGISTERED
from fedfdp.privacy.clipping.proof.calls import Arguments, Function, Keywords, name_of
from fedfdp.privacy.clipping.proof.conditions import (
    Condition,
    always,
    records_first,
    repeats_all_alike,
    rolls_within_records,
    scatters_within_records,
    triangle_within_records,
    writes_to_all_records,
)

_POINTWISE = """
abs absolute acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or
bitwise_xor ceil celu clamp clamp_max clamp_min clip complex conj conj_physical copysign cos cosh deg2rad digamma div
divide elu eq erf erfc erfinv exp exp2 expm1 fill float_power floor floor_divide fmax fmin fmod frac ge gelu greater
greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot imag isclose isfinite isinf isnan ldexp le
leaky_relu lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or
logical_xor logit logsigmoid lt masked_fill maximum minimum mish mul multiply nan_to_num ne neg negative not_equal
polar polygamma positive pow prelu rad2deg real reciprocal relu relu6 remainder resolve_conj resolve_neg round rsqrt
rsub selu sgn sigmoid sign silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink
threshold true_divide trunc where xlogy zero copy
__abs__ __add__ __and__ __div__ __eq__ __floordiv__ __ge__ __gt__ __iadd__ __iand__ __idiv__ __ifloordiv__ __imod__
__imul__ __invert__ __ior__ __ipow__ __isub__ __itruediv__ __ixor__ __le__ __lt__ __mod__ __mul__ __ne__ __neg__
__or__ __pow__ __radd__ __rand__ __rdiv__ __rfloordiv__ __rmod__ __rmul__ __ror__ __rpow__ __rsub__ __rtruediv__
__rxor__ __sub__ __truediv__ __xor__
"""
_COPIES = """
alias bfloat16 bool byte char clone contiguous cpu cuda data detach double float half int long requires_grad_ short to
to_dense type type_as
"""
_ALONG_DIMENSIONS = """
all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin cumprod cumsum glu kthvalue linalg_norm
linalg_vector_norm log_softmax logcumsumexp logsumexp max mean median min nanmean nanmedian nansum norm normalize prod
quantile softmax softmin sort std std_mean sum topk var var_mean
fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_irfft fft_irfft2 fft_rfft fft_rfft2 fft_fftshift
"""
_MOVES = """
H T __getitem__ adjoint broadcast_tensors broadcast_to cat chunk concat concatenate dstack expand expand_as flatten flip
gather hstack index_select mH mT meshgrid moveaxis movedim narrow one_hot pad permute repeat repeat_interleave reshape
reshape_as select split split_with_sizes squeeze stack swapaxes swapdims t take_along_dim tensor_split tile transpose
unbind unflatten unsqueeze view view_as view_as_complex view_as_real vstack
"""
_PRODUCTS = """
__matmul__ __rmatmul__ addbmm addmm addmv baddbmm bmm cdist chain_matmul einsum inner kron linalg_matmul matmul
mm multi_dot mv outer scaled_dot_product_attention tensordot
"""
_LAYERS = """
batch_norm bilinear channel_shuffle instance_norm native_channel_shuffle rms_norm
"""
_OVER_PLACES = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
affine_grid avg_pool1d avg_pool2d avg_pool3d conv_transpose1d conv_transpose2d conv_transpose3d fold grid_sample im2col
interpolate local_response_norm lp_pool1d lp_pool2d max_pool1d max_pool1d_with_indices max_pool2d
max_pool2d_with_indices max_pool3d max_pool3d_with_indices pixel_shuffle pixel_unshuffle unfold upsample
upsample_bilinear upsample_nearest
"""
_LOSSES = """
binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity cross_entropy
gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss
multilabel_margin_loss multilabel_soft_margin_loss nll_loss pairwise_distance poisson_nll_loss smooth_l1_loss
soft_margin_loss triplet_margin_loss
"""
_DRAWN = """
alpha_dropout bernoulli dropout dropout1d dropout2d dropout3d exponential feature_alpha_dropout normal rand rand_like
randn randn_like uniform
"""
_CREATED = """
arange empty empty_like eye full full_like new_empty new_full new_ones new_zeros ones ones_like scalar_tensor
tril_indices triu_indices zeros zeros_like
"""


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _overloads(names: str) -> frozenset[str]:
    """The names, and those of the operators behind them."""
    found = {name: getattr(torch.ops.aten, name, None) for name in names.split()}
    inner = [f"{name}.{own}" for name, packet in found.items() if packet is not None for own in packet.overloads()]
    return frozenset([*found, *inner])


# Their results depend on no number of a tensor, only on its shape, type and place.
SHAPE_ONLY = _named(
    "empty_like full_like new_empty new_full new_ones new_zeros ones_like rand_like randn_like zeros_like"
)
METADATA = _named(
    """
    __hash__ __len__ _version can_cast device dim dtype element_size get_device is_complex is_contiguous is_conj is_cpu
    is_cuda is_floating_point is_inference is_leaf is_meta is_mkldnn is_mps is_mtia is_neg is_nested is_quantized
    is_same_size is_signed is_sparse is_sparse_csr is_tensor is_vulkan is_xla is_xpu itemsize layout name names nbytes
    ndim ndimension nelement numel output_nr requires_grad requires_grad= result_type shape size storage_offset stride
    """
)
# They give the same value. Whether it is copied on the way may differ with the number of records.
UNCHANGED = _named("alias bfloat16 contiguous cpu double float half requires_grad_ to type type_as")
# They give memory as it is, with whatever was in it. It is written over, if all of it is new.
UNWRITTEN = _overloads("empty empty_like empty_permuted empty_strided new_empty new_empty_strided")
PARTLY_WRITTEN = _overloads("new resize resize_ resize_as resize_as_")
# They make a tensor of numbers that come from outside torch.
FOREIGN = _named("as_tensor asarray from_file from_numpy frombuffer tensor")


_LISTS = (_POINTWISE, _COPIES, _ALONG_DIMENSIONS, _MOVES, _PRODUCTS, _LAYERS, _LOSSES, _DRAWN, _CREATED)
_JUDGED: dict[str, Condition] = {
    **{name: always for names in _LISTS for name in names.split()},
    **dict.fromkeys(_OVER_PLACES.split(), records_first),
    **{name_of(function): met for rule, met in REGISTERED for function in rule.functions},
    "repeat_interleave": repeats_all_alike,
    "roll": rolls_within_records,
    "tril": triangle_within_records,
    "triu": triangle_within_records,
    "scatter": scatters_within_records,
    "scatter_add": scatters_within_records,
    "__setitem__": writes_to_all_records,
}


# By elements: each argument is broadcast to the result, so that one with a copy for every record does no harm.
_NOT_BROADCAST = _named("fill masked_fill polygamma prelu zero")
POINTWISE = frozenset(f"{name}{end}" for name in _named(_POINTWISE) - _NOT_BROADCAST for end in ("", "_"))
# The same for a trial: where the result keeps its records follows from the arguments, whatever the numbers show.
ELEMENTWISE = frozenset(f"{name}{end}" for name in _named(_POINTWISE + _DRAWN) for end in ("", "_"))
CREATED = _named(_CREATED)
# They go through time, where large numbers make rounding grow: a trial has numbers of usual size, and no ε to find.
THROUGH_TIME = _named("gru lstm rnn_relu rnn_tanh")
ATTENTION = "scaled_dot_product_attention"
# Done again they would give other numbers.
UNREPEATABLE = _named(_DRAWN)


# They give every record the same, whatever constants they read: a copy of the whole, or one number everywhere.
ALIKE = _named("broadcast_to expand repeat tile") | (CREATED - _named("arange eye tril_indices triu_indices"))
# Their whole numbers say how large a result is, or which part is taken: those may grow with the number of records.
# Any other would let a record's result depend on how many there are, where no trial looks.
SIZED = (
    ALIKE | UNREPEATABLE | _named("__getitem__ __setitem__ arange narrow reshape split split_with_sizes unflatten view")
)
# They take a part of a value, the same however many records there are.
PICKED = _named("__getitem__ chunk index_select narrow select split squeeze unbind")


def drops(name: str, args: Arguments, kwargs: Keywords) -> bool:
    """Whether attention drops some of its scores by chance."""
    if name != ATTENTION:
        return False
    return bool(args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0))


def draws(name: str, args: Arguments, kwargs: Keywords) -> bool:
    """Whether a call may draw random numbers."""
    return name.removesuffix("_") in UNREPEATABLE or name in THROUGH_TIME or drops(name, args, kwargs)


def condition(name: str) -> Condition | None:
    """What must hold for a trial of this function to count; None where no trial does."""
    return _JUDGED.get(name) or _JUDGED.get(name.removesuffix("_"))


@dataclass(frozen=True, slots=True)
class Kind:
    """What the tape asks of every function, by the lists above."""

    name: str
    simple: bool  # it is in none of the lists below, but for `unchanged`: its calls are made as they are
    metadata: bool
    apart: bool  # it may be re-run as the calls that it is made of, or gives memory with whatever was in it
    foreign: bool
    unwritten: bool
    unchanged: bool
    draws: bool  # it may draw random numbers


@cache
def kind_of(func: Function) -> Kind:
    """The lists that a function is in: a pass asks it of every call, and its name decides once for all."""
    name = name_of(func)
    apart = func in IN_STEPS or func in WITH_WEIGHTS or name in PARTLY_WRITTEN
    chance = name.removesuffix("_") in UNREPEATABLE or name in THROUGH_TIME or name == ATTENTION
    metadata, foreign, unwritten = name in METADATA, name in FOREIGN, name in UNWRITTEN
    simple = not (metadata or apart or foreign or unwritten or chance)
    return Kind(name, simple, metadata, apart, foreign, unwritten, name in UNCHANGED, chance)
