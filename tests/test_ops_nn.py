"""Functions of networks (F15-F48) like PyTorch: values and two derivatives."""
import numpy as np
import pytest
from helpers_ops import Cases, R, compare, ints

import adjoint as ad

pytest.importorskip("torch")
case = Cases()

X, T45, W4 = R(3, 4, 5), ints(4, 3, 5), np.abs(R(4)) + 0.1
case("softmax", lambda T, F, x: F.softmax(x, 1), X)
case("log_softmax", lambda T, F, x: F.log_softmax(x, 1), X)
P, Q, S = np.random.default_rng(1).random((2, 3, 4)), None, np.sign(R(3, 4))
P, Q = P
for red in ("none", "mean", "sum"):
    for ls in (0.0, 0.2):
        case(f"cross_entropy {red} {ls}", lambda T, F, x, t, r=red, s=ls: F.cross_entropy(
            x, t, reduction=r, label_smoothing=s), X, T45)
        case(f"cross_entropy weighted {red} {ls}", lambda T, F, x, t, r=red, s=ls: F.cross_entropy(
            x, t, T.tensor(W4), reduction=r, label_smoothing=s, ignore_index=2), X, T45)
        case(f"cross_entropy soft {red} {ls}", lambda T, F, x, t, r=red, s=ls: F.cross_entropy(
            x, F.softmax(t, 1), T.tensor(W4), reduction=r, label_smoothing=s), X, R(3, 4, 5))
    case(f"nll_loss {red}", lambda T, F, x, t, r=red: F.nll_loss(x, t, T.tensor(W4), reduction=r),
         X, T45)
    for n in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss"):
        case(f"{n} {red}", lambda T, F, a, b, n=n, r=red: getattr(F, n)(a, b, reduction=r),
             R(3, 4), R(3, 4))
    case(f"binary_cross_entropy {red}", lambda T, F, a, b, r=red: F.binary_cross_entropy(
        a, b, reduction=r), P, Q)
    case(f"bce with logits {red}", lambda T, F, a, b, r=red: F.binary_cross_entropy_with_logits(
        a, b, reduction=r, pos_weight=T.tensor(Q[0])), R(3, 4), Q)
    case(f"hinge_embedding_loss {red}", lambda T, F, a, r=red: F.hinge_embedding_loss(
        a, T.tensor(S), reduction=r), R(3, 4))
    case(f"margin_ranking_loss {red}", lambda T, F, a, b, r=red: F.margin_ranking_loss(
        a, b, T.tensor(S), 0.1, reduction=r), R(3, 4), R(3, 4))
    case(f"soft_margin_loss {red}", lambda T, F, a, r=red: F.soft_margin_loss(
        a, T.tensor(S), reduction=r), R(3, 4))
    case(f"cosine_embedding_loss {red}", lambda T, F, a, b, r=red: F.cosine_embedding_loss(
        a, b, T.tensor(S[:, 0]), 0.1, reduction=r), R(3, 4), R(3, 4))
    case(f"triplet_margin_loss {red}", lambda T, F, a, b, c, r=red: F.triplet_margin_loss(
        a, b, c, swap=True, reduction=r), R(3, 4), R(3, 4), R(3, 4))
    case(f"gaussian_nll_loss {red}", lambda T, F, a, b, c, r=red: F.gaussian_nll_loss(
        a, b, c, full=True, reduction=r), R(3, 4), R(3, 4), P)
    case(f"multi_margin_loss {red}", lambda T, F, a, t, r=red: F.multi_margin_loss(
        a, t, 2, weight=T.tensor(Q[0]), reduction=r), R(3, 4), np.array([0, 3, 1]), second=False)
    case(f"multilabel_margin_loss {red}", lambda T, F, a, t, r=red: F.multilabel_margin_loss(
        a, t, reduction=r), R(3, 4), np.array([[0, 3, -1, 1], [1, -1, 0, 0], [2, 1, 0, 3]]),
        second=False)
    case(f"ctc_loss {red}", lambda T, F, x, t, r=red: F.ctc_loss(
        F.log_softmax(x, 2), t, (6, 5), (2, 3), reduction=r), R(6, 2, 4),
        np.array([[1, 1, 0], [2, 3, 2]]), second=False)
case("poisson full", lambda T, F, a, b: F.poisson_nll_loss(a, b, False, True), P, Q * 3)
case("cosine_similarity", lambda T, F, a, b: F.cosine_similarity(a, b), R(3, 4), R(3, 4))
case("pairwise_distance", lambda T, F, a, b: F.pairwise_distance(a, b), R(3, 4), R(3, 4))
case("layer_norm", lambda T, F, x, w, b: F.layer_norm(x, (4, 5), w, b), X, R(4, 5), R(4, 5))
case("layer_norm plain", lambda T, F, x: F.layer_norm(x, (5,)), X)
case("layer_norm frozen x", lambda T, F, w, b: F.layer_norm(T.tensor(X), (5,), w, b), R(5), R(5))
IM = R(2, 4, 5, 6)
case("batch_norm", lambda T, F, a, w, b: F.batch_norm(a, None, None, w, b, True), IM, R(4), R(4))
case("batch_norm eval", lambda T, F, a, w, b: F.batch_norm(a, T.tensor(Q[0]), T.tensor(Q[1]), w, b),
     IM, R(4), R(4))


def running(T, F, a):
    mean, var = T.zeros(4, dtype=T.float64), T.ones(4, dtype=T.float64)
    F.batch_norm(a, mean, var, None, None, True)
    return mean + var * 3


case("running statistics", running, IM)
case("instance_norm", lambda T, F, a, w, b: F.instance_norm(a, None, None, w, b), IM, R(4), R(4))
case("group_norm", lambda T, F, a, w, b: F.group_norm(a, 2, w, b), IM, R(4), R(4))
case("rms_norm", lambda T, F, a, w: F.rms_norm(a, (6,), w), IM, R(6))
case("rms_norm complex", lambda T, F, a, b, w: T.view_as_real(
    F.rms_norm(T.complex(a, b), (6,), T.complex(w, w * 2))), IM, IM[::-1].copy() * 0.5, R(6))
case("local_response_norm", lambda T, F, a: F.local_response_norm(a, 3), IM)
case("normalize", lambda T, F, a: F.normalize(a), IM)
case("embedding", lambda T, F, w, i: F.embedding(i, w, 1), R(3, 6), ints(3, 2, 2))
case("embedding by frequency", lambda T, F, w, i: F.embedding(i, w, scale_grad_by_freq=True).sum(),
     R(3, 6), ints(3, 2, 2))
for m in ("sum", "mean", "max"):
    case(f"embedding_bag {m}", lambda T, F, w, i, o, m=m: F.embedding_bag(i, w, o, mode=m),
         R(6, 3), np.array([1, 2, 4, 5, 4, 3, 2, 0]), np.array([0, 4, 4, 6]), second=False)
    case(f"embedding_bag 2d {m}", lambda T, F, w, i, m=m: F.embedding_bag(
        i, w, mode=m, padding_idx=2), R(6, 3), np.array([[1, 2, 4, 5], [4, 3, 2, 0]]),
        second=False)
QQ, K, V = R(2, 4, 4, 5), R(2, 4, 6, 5), R(2, 4, 6, 7)


def attend(**options):
    return lambda T, F, *a: F.scaled_dot_product_attention(*a, **options)


case("attention", attend(), QQ, K, V)
case("attention causal", attend(is_causal=True), QQ, K, V)
case("attention mask", attend(scale=0.3), QQ, K, V, R(4, 6))
case("attention bool mask", attend(), QQ, K, V, np.tril(np.ones((4, 6), bool), 1))
case("attention grouped", attend(enable_gqa=True), R(2, 8, 4, 5), K, V)
case("attention grouped apart", attend(enable_gqa=True), R(2, 8, 4, 5), R(2, 2, 6, 5), V)
case("attention grouped, one batch", attend(enable_gqa=True), R(2, 8, 4, 5), R(1, 2, 6, 5), V)
for need in (True, False):
    case(f"multi head {need}", lambda T, F, q, k, w, b, ow, ob, n=need:
         F.multi_head_attention_forward(q, k, k, 8, 2, w, b, None, None, False, 0.0, ow, ob,
                                        need_weights=n)[0],
         R(3, 2, 8), R(4, 2, 8), R(24, 8), R(24), R(8, 8), R(8), second=need)
ACTIVATIONS = ("relu", "relu6", "selu", "elu", "celu", "leaky_relu", "gelu", "silu", "mish",
               "softplus", "logsigmoid", "hardtanh", "hardswish", "hardshrink", "softshrink",
               "tanhshrink", "softsign", "glu")
for n in ACTIVATIONS:
    case(n, lambda T, F, x, n=n: getattr(F, n)(x), R(3, 4) * 2)
case("gelu tanh", lambda T, F, x: F.gelu(x, approximate="tanh"), X)
case("prelu", lambda T, F, x, w: F.prelu(x, w), X, R(4))


@pytest.mark.parametrize("one", case, ids=repr)
def test_like_torch(one):
    compare(one)


@pytest.mark.parametrize("name", ACTIVATIONS[:-1])     # (of few elements, glu is two operations)
def test_an_activation_is_one_node_that_keeps_one_array(name):
    x = ad.randn(4, 6, requires_grad=True)
    y = getattr(ad.nn.functional, name)(x)
    (leaf, _), = y.grad_fn.next_functions
    assert type(leaf).__name__ == "AccumulateGrad" and leaf.variable is x
    assert sum(t.nbytes for t in y.grad_fn.saved_tensors) <= x.nbytes
