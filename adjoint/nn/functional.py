"""Functions of neural networks, with the names and signatures of `torch.nn.functional`."""
from __future__ import annotations

from adjoint.ops.activation import (
    celu, celu_, elu, elu_, gelu, glu, gumbel_softmax, hardshrink, hardsigmoid, hardswish,
    hardtanh, hardtanh_, leaky_relu, leaky_relu_, logsigmoid, mish, prelu, relu, relu6, relu_,
    rrelu, rrelu_, selu, selu_, sigmoid, silu, softplus, softshrink, softsign, tanh, tanhshrink,
    threshold, threshold_,
)
from adjoint.ops.api_index import one_hot
from adjoint.ops.api_linalg import linear
from adjoint.ops.attention import scaled_dot_product_attention
from adjoint.ops.cross_entropy import cross_entropy, nll_loss
from adjoint.ops.dropout import (
    alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout,
)
from adjoint.ops.embedding import embedding
from adjoint.ops.norm import layer_norm
from adjoint.ops.softmax import f_log_softmax as log_softmax
from adjoint.ops.softmax import f_softmax as softmax
from adjoint.ops.softmax import softmin

__all__ = [
    "alpha_dropout", "celu", "celu_", "cross_entropy", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "elu_", "embedding", "feature_alpha_dropout", "gelu", "glu",
    "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_",
    "layer_norm", "leaky_relu", "leaky_relu_", "linear", "log_softmax", "logsigmoid", "mish",
    "nll_loss", "one_hot", "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_",
    "scaled_dot_product_attention", "selu", "selu_", "sigmoid", "silu", "softmax", "softmin",
    "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
]
