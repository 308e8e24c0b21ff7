"""Functions of neural networks, with the names and signatures of `torch.nn.functional`."""
from __future__ import annotations

from adjoint.base.errors import missing as _missing
from adjoint.ops.activation import (
    celu,
    celu_,
    elu,
    elu_,
    gelu,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    selu,
    selu_,
    sigmoid,
    silu,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
    threshold_,
)
from adjoint.ops.api_index import one_hot
from adjoint.ops.api_linalg import linear
from adjoint.ops.api_names import INDEXED as _INDEXED
from adjoint.ops.api_names import native_channel_shuffle
from adjoint.ops.attention import scaled_dot_product_attention
from adjoint.ops.batch_norm import batch_norm, local_response_norm, normalize
from adjoint.ops.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from adjoint.ops.cross_entropy import cross_entropy, nll_loss
from adjoint.ops.ctc import ctc_loss
from adjoint.ops.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from adjoint.ops.embedding import embedding
from adjoint.ops.fractional import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
)
from adjoint.ops.group_norm import group_norm, instance_norm, rms_norm
from adjoint.ops.linear_loss import linear_cross_entropy
from adjoint.ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    pairwise_distance,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from adjoint.ops.network import (
    bilinear,
    embedding_bag,
    multi_head_attention_forward,
    pdist,
)
from adjoint.ops.norm import layer_norm
from adjoint.ops.pool import POOLS as _POOLS
from adjoint.ops.resample import (
    interpolate,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from adjoint.ops.softmax import f_log_softmax as log_softmax
from adjoint.ops.softmax import f_softmax as softmax
from adjoint.ops.softmax import softmin
from adjoint.ops.vision import (
    affine_grid,
    channel_shuffle,
    fold,
    grid_sample,
    pad,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
)

adaptive_avg_pool1d = _POOLS["adaptive_avg_pool1d"]
adaptive_avg_pool2d = _POOLS["adaptive_avg_pool2d"]
adaptive_avg_pool3d = _POOLS["adaptive_avg_pool3d"]
adaptive_max_pool1d = _POOLS["adaptive_max_pool1d"]
adaptive_max_pool2d = _POOLS["adaptive_max_pool2d"]
adaptive_max_pool3d = _POOLS["adaptive_max_pool3d"]
avg_pool1d = _POOLS["avg_pool1d"]
avg_pool2d = _POOLS["avg_pool2d"]
avg_pool3d = _POOLS["avg_pool3d"]
lp_pool1d = _POOLS["lp_pool1d"]
lp_pool2d = _POOLS["lp_pool2d"]
lp_pool3d = _POOLS["lp_pool3d"]
max_pool1d = _POOLS["max_pool1d"]
max_pool2d = _POOLS["max_pool2d"]
max_pool3d = _POOLS["max_pool3d"]
max_unpool1d = _POOLS["max_unpool1d"]
max_unpool2d = _POOLS["max_unpool2d"]
max_unpool3d = _POOLS["max_unpool3d"]
max_pool1d_with_indices = _INDEXED["max_pool1d_with_indices"]
max_pool2d_with_indices = _INDEXED["max_pool2d_with_indices"]
max_pool3d_with_indices = _INDEXED["max_pool3d_with_indices"]
adaptive_max_pool1d_with_indices = _INDEXED["adaptive_max_pool1d_with_indices"]
adaptive_max_pool2d_with_indices = _INDEXED["adaptive_max_pool2d_with_indices"]
adaptive_max_pool3d_with_indices = _INDEXED["adaptive_max_pool3d_with_indices"]
__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss", "gelu", "glu", "grid_sample", "group_norm", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "hinge_embedding_loss",
    "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu",
    "leaky_relu_", "linear", "linear_cross_entropy",
    "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d",
    "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d",
    "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
    "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu",
    "relu", "relu6", "relu_", "rms_norm", "rrelu", "rrelu_", "scaled_dot_product_attention",
    "selu", "selu_", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax",
    "native_channel_shuffle", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
    "threshold",
    "threshold_", "triplet_margin_loss", "triplet_margin_with_distance_loss", "unfold",
    "upsample", "upsample_bilinear", "upsample_nearest",
    "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices",
]
__getattr__ = _missing("adjoint.nn.functional", "adjoint.nn._names")
