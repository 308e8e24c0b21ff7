"""Sample operands for every op record: the rows of the law table."""
from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.core.op import OPS, Op

Sample = tuple[tuple[Any, ...], dict[str, Any]]
_rng = np.random.default_rng(7)


def r(*shape: int) -> Any:
    """Normal numbers, away from the kinks at 0."""
    x = _rng.standard_normal(shape)
    return np.asarray(x + 0.05 * np.sign(x))


def pos(*shape: int) -> Any:
    """Numbers in [0.3, 2]."""
    return np.asarray(_rng.uniform(0.3, 2.0, shape))


def unit(*shape: int) -> Any:
    """Numbers in [-0.9, 0.9]."""
    return np.asarray(_rng.uniform(-0.9, 0.9, shape))


def c(*shape: int) -> Any:
    """Complex normal numbers."""
    return np.asarray(_rng.standard_normal(shape) + 1j * _rng.standard_normal(shape))


def ints(high: int, *shape: int) -> Any:
    """Integers in [0, high)."""
    return np.asarray(_rng.integers(0, high, shape))


def mask(*shape: int) -> Any:
    """Truth values."""
    return np.asarray(_rng.random(shape) > 0.4)


DOMAIN: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma",
                     "polygamma"), pos),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), unit),
    "binary_cross_entropy_each": lambda *s: np.asarray(_rng.uniform(0.1, 0.9, s)),
    "log1p": pos, "acosh": lambda *s: pos(*s) + 1.1,
    "logit": lambda *s: np.asarray(_rng.uniform(0.1, 0.9, s)),
    "tan": unit,
}
ATTRS: dict[str, dict[str, Any]] = {
    "addcmul": {"value": 0.5}, "addcdiv": {"value": 0.5}, "add_scaled": {"alpha": 0.5},
    "sub_scaled": {"alpha": 0.5}, "clamp_min": {"low": -0.3}, "clamp_max": {"high": 0.3},
    "clamp": {"low": -0.5, "high": 0.5}, "softplus": {"beta": 1.5, "threshold": 20.0},
    "elu": {"alpha": 1.2, "scale": 1.0, "input_scale": 0.8}, "leaky_relu": {"negative_slope": 0.1},
    "hardtanh": {"low": -0.5, "high": 0.5}, "softshrink": {"lambd": 0.3},
    "smooth_l1_loss_each": {"beta": 0.7}, "huber_loss_each": {"delta": 0.7},
    "hardshrink": {"lambd": 0.3}, "threshold": {"threshold": 0.1, "value": 0.2},
}
POSITIVE_FIRST = {"pow"}
POSITIVE_LAST = {"div", "addcdiv", "fmod", "remainder", "floor_divide", "copysign",
                 "gaussian_nll_loss"}


def pointwise_samples(op: Op) -> list[Sample]:
    """Same shapes, broadcasting, 0-d, zero-size."""
    make: Callable[..., Any] = DOMAIN.get(op.name, r)
    attrs = ATTRS.get(op.name, {})
    n = len(op.operands)
    forms: dict[int, list[tuple[tuple[int, ...], ...]]] = {
             1: [((2, 3),), ((),), ((0, 3),)],
             2: [((2, 3), (2, 3)), ((2, 1), (3,)), ((), (2,)), ((0, 3), (3,))],
             3: [((2, 3), (2, 3), (2, 3)), ((2, 1), (3,), ())]}
    rows = []
    for shapes in forms[n]:
        args: list[Any] = [make(*s) for s in shapes]
        if op.name in POSITIVE_FIRST:
            args[0] = pos(*shapes[0])
        if op.name in POSITIVE_LAST:
            args[-1] = pos(*shapes[-1])
        if op.name in ("logical_and", "logical_or", "logical_not"):
            args = [a > 0 for a in args]
        rows.append((tuple(args), attrs))
    return rows


def _losses() -> dict[str, list[Sample]]:
    """Reduced losses: operands alike, broadcast, 0-d and empty."""
    shapes = [((2, 3), (2, 3)), ((2, 1), (3,)), ((), ()), ((0, 3), (0, 3))]
    out: dict[str, list[Sample]] = {}
    for name, operands, attrs in (
            ("mse_loss", 2, {}), ("soft_margin_loss", 2, {}), ("smooth_l1_loss", 2, {"beta": 0.7}),
            ("huber_loss", 2, {"delta": 0.7}), ("binary_cross_entropy", 2, {}),
            ("binary_cross_entropy_with_logits", 2, {}),
            ("binary_cross_entropy_with_pos_weight", 3, {})):
        make: Callable[..., Any] = DOMAIN.get(f"{name}_each", r)
        out[name] = [((make(*a), *(make(*b) for _ in range(operands - 1))),
                      {**attrs, "reduction": reduction})
                     for a, b in shapes for reduction in ("sum", "mean")
                     if reduction == "sum" or 0 not in a]      # (the mean of nothing is nan)
    return out


def _reductions() -> dict[str, list[Sample]]:
    out: dict[str, list[Sample]] = {}
    for name in ("sum", "sum_all", "mean", "mean_all", "prod", "logsumexp", "amax", "amin",
                 "max_all", "min_all", "all", "any", "count_nonzero"):
        out[name] = [((r(2, 3, 4),), {"dim": (1,), "keepdim": False}),
                     ((r(2, 3),), {"dim": (0, 1), "keepdim": True}),
                     ((r(),), {"dim": (), "keepdim": False})]
        if name[:3] in ("sum", "mea", "pro", "all", "any", "cou"):
            out[name].append(((r(2, 0),), {"dim": (0,), "keepdim": False}))
    out["prod"].append(((np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]]),),
                        {"dim": (1,), "keepdim": False}))
    for name in ("sum", "mean", "prod"):
        out[name].append(((c(2, 3),), {"dim": (1,), "keepdim": False}))
    for name in ("var", "std"):
        out[name] = [((r(2, 3, 4),), {"dim": (1, 2), "keepdim": k, "correction": 1})
                     for k in (False, True)]
    out["linalg_vector_norm"] = [((r(2, 3),), {"p": p, "dim": (1,), "keepdim": False})
                                 for p in (1.0, 2.0, 3.0, 0.0, np.inf, -np.inf)]
    for name in ("max_dim", "min_dim"):
        out[name] = [((r(2, 3),), {"dim": 1, "keepdim": k}) for k in (False, True)]
        out[name].append(((r(),), {"dim": 0, "keepdim": False}))
    for name in ("kthvalue", "median", "nanmedian", "mode"):
        out[name] = [((r(2, 5),), {"dim": 1, "keepdim": k, "k": 2}) for k in (False, True)]
    for name in ("argmax", "argmin"):
        out[name] = [((r(2, 3),), {"dim": d, "keepdim": k})
                     for d in (None, 1) for k in (False, True)]
    return out


def _views() -> dict[str, list[Sample]]:
    return {
        "view": [((r(2, 3),), {"shape": (3, 2)}), ((r(0, 2),), {"shape": (2, 0)})],
        "unsqueeze": [((r(2, 3),), {"dim": 1})], "squeeze": [
            ((r(2, 1, 3),), {"dims": (1,)}), ((r(2, 3),), {"dims": ()})],
        "permute": [((r(2, 3, 4),), {"dims": (2, 0, 1)})],
        "transpose": [((r(2, 3, 4),), {"dim0": 0, "dim1": 2})],
        "t": [((r(2, 3),), {})], "expand": [((r(2, 1),), {"shape": (4, 2, 3)})],
        "flip": [((r(2, 3),), {"dims": (1,)})],
        "roll": [((r(2, 3),), {"shifts": (1, 2), "dims": (0, 1)})],
        "clone": [((r(2, 3),), {})], "alias": [((r(2, 3),), {})],
        "checkpoint_name": [((r(2, 3),), {"name": "h"})],
        "contiguous": [((r(2, 3),), {})],
        "cat": [((r(2, 3), r(1, 3)), {"dim": 0}), ((r(2, 3), r(2, 2), r(2, 0)), {"dim": 1})],
        "stack": [((r(2, 3), r(2, 3)), {"dim": 1})],
        "narrow": [((r(2, 5),), {"dim": 1, "start": 1, "length": 2})],
        "select": [((r(2, 5),), {"dim": 1, "index": 3})],
        "select_backward": [((r(2, 3),), {"dim": 1, "index": 3, "size": 5})],
        "constant_pad_zero": [((r(2, 3),), {"pads": ((1, 0), (0, 2))})],
        **dict.fromkeys(("split", "split_with_sizes", "unsafe_split"),
                        [((r(2, 5),), {"sizes": (2, 3), "dim": 1})]),
        "unbind": [((r(2, 3),), {"dim": 1})],
        "repeat": [((r(2, 3),), {"reps": (2, 1, 3)})],
        "slice": [((r(4, 5),), {"index": (slice(0, 4, 2), None, 3)})],
        "unslice": [((r(2, 1),), {"index": (slice(0, 4, 2), None, 3), "shape": (4, 5)})],
        "slice_put": [((r(4, 5), r(2, 3)), {"index": (slice(1, 3), slice(0, 3))}),
                      ((r(4, 5), r(3)), {"index": (slice(1, 3), slice(0, 3))})],
        "copy": [((r(2, 3), r(3)), {})],
        "tril": [((r(3, 4),), {"diagonal": -1})], "triu": [((r(3, 4),), {"diagonal": 1})],
    }


def _indexing() -> dict[str, list[Sample]]:
    at = np.array([[0, 2], [2, 2]])
    return {
        "index": [((r(3, 4), at), {"dims": (0,)}), ((r(2, 3, 4), at), {"dims": (1,)}),
                  ((r(2, 3, 4), np.array([0, 5, 5])), {"dims": (0, 1)}),
                  ((r(2, 3, 4), np.array([0, 7, 7])), {"dims": (0, 2)}),
                  ((r(2, 3, 4), np.zeros(0, np.int64)), {"dims": (1,)})],
        "index_select": [((r(3, 4), np.array([0, 2, 2])), {"dims": (1,)})],
        "take": [((r(6), at), {"dims": (0,)})],
        "locate": [((np.array([2, 0]), np.array([1, -1])), {"sizes": (3, 4), "dims": (0, 1)}),
                   ((np.array([[1], [-2]]), np.array([3, 1], np.int32)),
                    {"sizes": (2, 4), "dims": (0, 2)})],
        "unindex": [((r(2, 2, 4), at), {"shape": (3, 4), "dims": (0,)}),
                    ((r(2, 3, 4), np.array([0, 5, 5])), {"shape": (2, 6, 4), "dims": (1,)}),
                    ((r(3, 3), np.array([0, 7, 7])), {"shape": (2, 3, 4), "dims": (0, 2)})],
        "index_put": [((r(3, 4), np.array([0, 2]), r(2, 4)), {"dims": (0,), "accumulate": False}),
                      ((r(3, 4), np.array([2, 2]), r(4)), {"dims": (0,), "accumulate": True}),
                      ((r(2, 3, 4), np.array([0, 7]), r(3)),
                       {"dims": (0, 2), "accumulate": False})],
        "masked_fill": [((r(2, 3), mask(2, 3), r()), {}), ((r(2, 3), mask(3), r()), {})],
        "gather": [((r(3, 4), ints(4, 2, 5)), {"dim": 1}), ((r(), ints(1)), {"dim": 0})],
        "put_along": [((r(2, 5), ints(4, 2, 5)), {"dim": 1, "shape": (3, 4)}),
                      ((r(2, 1), ints(4, 2, 1)), {"dim": 1, "shape": (2, 4)})],
        "scatter": [((r(3, 4), np.array([[0, 1], [3, 2]]), r(2, 2)), {"dim": 1})],
        "scatter_add": [((r(3, 4), np.array([[0, 0], [3, 3]]), r(3, 2)), {"dim": 1})],
        **{name: [((r(3, 4), np.array([[0, 0], [3, 3], [1, 2]]), r(3, 2)),
                   {"dim": 1, "include": own}) for own in (True, False)]
           for name in ("scatter_amax", "scatter_amin")},
        "where": [((mask(2, 3), r(2, 3), r(3)), {})],
        "embedding": [((r(4, 3), ints(4, 2, 3)), {"padding_idx": -1})],
        "embedding_sparse": [((r(4, 3), ints(4, 2, 3)), {"padding_idx": -1})],
        "embedding_backward": [((r(2, 3, 3), ints(4, 2, 3)), {"rows": 4, "padding_idx": 1})],
        "sort": [((r(2, 5),), {"dim": 1, "descending": d}) for d in (False, True)],
        "topk": [((r(2, 5),), {"dim": 1, "k": 2, "largest": d}) for d in (False, True)],
    }


def _products() -> dict[str, list[Sample]]:
    addmm = {"beta": 0.5, "alpha": 2.0}
    return {
        "mm": [((r(2, 3), r(3, 4)), {}), ((c(2, 3), c(3, 4)), {}), ((r(2, 0), r(0, 4)), {})],
        "mm_left": [((r(3, 2), r(3, 4)), {}), ((r(0, 2), r(0, 4)), {})],
        "mm_right": [((r(2, 3), r(4, 3)), {}), ((r(2, 0), r(4, 0)), {})],
        "bmm": [((r(2, 2, 3), r(2, 3, 4)), {})],
        "matmul": [((r(2, 2, 3), r(3, 4)), {}), ((r(2, 3), r(5, 3, 4)), {}),
                   ((r(2, 1, 2, 3), r(4, 3, 2)), {}), ((c(2, 2, 3), c(3, 2)), {})],
        "mv": [((r(2, 3), r(3)), {})], "vm": [((r(3), r(3, 2)), {}), ((c(3), c(3, 2)), {})],
        "dot": [((r(3), r(3)), {}), ((c(3), c(3)), {})],
        "linear": [((r(2, 2, 3), r(4, 3), r(4)), {}), ((r(3), r(4, 3), None), {}),
                   ((r(2, 3), r(4, 3), r(4)), {})],
        "addmm": [((r(4), r(2, 3), r(3, 4)), addmm), ((r(2, 4), r(2, 3), r(3, 4)), addmm)],
        "baddbmm": [((r(4), r(2, 2, 3), r(2, 3, 4)), addmm)],
    }


def _networks() -> dict[str, list[Sample]]:
    plain = {"reduction": "mean", "ignore_index": -100, "label_smoothing": 0.0}
    target = np.array([1, 0, 2])
    att = {"causal": False, "scale": 0.5, "dropout": 0.0, "seed": 0}
    y = np.exp(r(2, 3))
    return {
        "softmax": [((r(2, 3),), {"dim": 1}), ((r(2, 3),), {"dim": 0}), ((r(),), {"dim": 0}),
                    ((r(0, 3),), {"dim": 1})],
        "log_softmax": [((r(2, 3),), {"dim": 1}), ((r(2, 3),), {"dim": 0})],
        "softmax_backward": [((r(2, 3), y / y.sum(1, keepdims=True)), {"dim": 1})],
        "log_softmax_backward": [((r(2, 3), -pos(2, 3)), {"dim": 1})],
        "cross_entropy": [((r(3, 4), target, w), {**plain, **extra}) for w in (None, pos(4))
                          for extra in ({}, {"reduction": "none"}, {"label_smoothing": 0.1},
                                        {"reduction": "sum", "ignore_index": 0})] + [
            ((r(3, 4, 2), ints(4, 3, 2), None), plain)],
        "linear_cross_entropy": [
            ((r(3, 5), r(4, 5), b, target, w), {**plain, **extra})
            for b, w in ((None, None), (r(4), pos(4)))
            for extra in ({}, {"reduction": "none", "ignore_index": 0}, {"label_smoothing": 0.1})],
        "nll_loss": [((r(3, 4), target, w), {"reduction": red, "ignore_index": -100})
                     for w in (None, pos(4)) for red in ("none", "mean", "sum")],
        "layer_norm": [((r(2, 3, 4), r(4), r(4)), {"ndim": 1, "eps": 1e-5}),
                       ((r(2, 3, 4), None, None), {"ndim": 2, "eps": 1e-5}),
                       ((r(2, 3, 4), r(3, 4), None), {"ndim": 2, "eps": 1e-5})],
        "scale_gradient": [],
        "scaled_dot_product_attention": [
            ((r(2, 2, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 2), None), att),
            ((r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 2), None), {**att, "causal": True}),
            ((r(1, 2, 3, 4), r(1, 2, 5, 4), r(1, 2, 5, 2), r(3, 5)), att),
            ((r(1, 2, 3, 4), r(1, 2, 5, 4), r(1, 2, 5, 2), None),
             {**att, "dropout": 0.4, "seed": 5}),
            ((r(1, 4, 3, 4), r(1, 2, 5, 4), r(1, 2, 5, 2), None), att)],
    }


def _images() -> dict[str, list[Sample]]:
    conv = {"stride": (2,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    two = {"stride": (1, 2), "padding": ((1, 0), (0, 1)), "dilation": (1, 1), "groups": 2}
    pool = {"kernel": (2, 3), "stride": (2, 2), "padding": (0, 1), "ceil_mode": False}
    mean = {**pool, "count_include_pad": False, "divisor_override": None}
    return {
        "convolution": [((r(2, 3, 5), r(4, 3, 3), r(4)), conv), ((r(2, 3, 5), r(4, 3, 3), None),
                                                                conv),
                        ((r(2, 2, 4, 5), r(4, 1, 2, 2), r(4)), two)],
        "convolution_input": [((r(2, 4, 3), r(4, 3, 3)), {**conv, "x_shape": (2, 3, 5)})],
        "convolution_weight": [((r(2, 4, 3), r(2, 3, 5)), {**conv, "w_shape": (4, 3, 3)}),
                               ((r(2, 4, 4, 3), r(2, 2, 4, 5)), {**two, "w_shape": (4, 1, 2, 2)})],
        "max_pool": [((r(2, 2, 4, 5),), {**pool, "dilation": (1, 1)})],
        "avg_pool": [((r(2, 2, 4, 5),), mean)],
        "avg_pool_backward": [((r(2, 2, 2, 3),), {**mean, "x_shape": (2, 2, 4, 5)})],
        "adaptive_max_pool": [((r(2, 2, 4, 5),), {"size": (2, 3)})],
        "adaptive_avg_pool": [((r(2, 2, 4, 5),), {"size": (2, 3)})],
        "adaptive_avg_pool_backward": [((r(2, 2, 2, 3),), {"x_shape": (2, 2, 4, 5)})],
        "constant_pad": [((r(2, 3),), {"pads": ((1, 0), (0, 2)), "value": 3.0})],
        "batch_norm": [((r(3, 2, 4), r(2), r(2)), {"eps": 1e-5}),
                       ((r(3, 2), None, None), {"eps": 1e-5})],
        "diagonal": [((r(2, 3, 4),), {"offset": 1, "dim1": 0, "dim2": 2})],
        "diagonal_backward": [((r(3, 2),), {"offset": 1, "dim1": 0, "dim2": 2,
                                            "shape": (2, 3, 4)})],
        "unfold": [((r(2, 5),), {"dim": 1, "size": 3, "step": 1})],
        "as_strided": [((r(3, 4),), {"size": (3, 2), "stride": (2, 1), "offset": 3})],
    }


def _spd(*shape: int) -> Any:
    """Symmetric positive definite matrices."""
    a = r(*shape)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])


def _apart(n: int) -> Any:
    """A general matrix whose eigenvalues are apart: no rounding turns an eigenvector around."""
    return np.diag(1.0 + 1.5 * np.arange(n)) + 0.3 * r(n, n)


def _systems() -> dict[str, list[Sample]]:
    tri = {"upper": True, "unit": False}
    whole = {"dims": (0, 1), "norm": "ortho", "inverse": False}
    return {
        "linalg_solve": [((r(2, 3, 3), r(2, 3, 2)), {}), ((c(3, 3), c(3, 2)), {})],
        "linalg_solve_triangular": [((_spd(3, 3), r(3, 2)), tri),
                                    ((_spd(3, 3), r(3, 2)), {"upper": False, "unit": True})],
        "linalg_inv": [((r(2, 3, 3),), {}), ((c(3, 3),), {})],
        "linalg_det": [((r(2, 3, 3),), {}), ((c(3, 3),), {})],
        "linalg_slogdet": [((r(2, 3, 3),), {})],
        "linalg_cholesky": [((_spd(2, 3, 3),), {})],
        "linalg_qr": [((r(2, 3, 3),), {}), ((r(4, 2),), {}), ((r(2, 4),), {})],
        "geqrf": [((r(2, 3, 3),), {}), ((r(4, 2),), {}), ((r(2, 4),), {})],
        "lu_permutation": [((np.array([[3, 2, 3], [1, 3, 3]], np.int32),),
                            {"m": 3, "dtype": np.float64})],
        "linalg_lu": [((r(2, 3, 3),), {}), ((r(4, 2),), {}), ((r(2, 4),), {})],
        "linalg_eigh": [((_spd(2, 3, 3),), {"uplo": "L"})], "linalg_eig": [((_apart(3),), {})],
        "linalg_svd": [((r(2, 3, 3),), {}), ((r(4, 2),), {}), ((r(2, 4),), {})],
        "linalg_matrix_exp": [((r(2, 3, 3),), {}), ((c(2, 2),), {})],
        "linalg_pinv": [((r(4, 2),), {"rtol": 1e-12}), ((r(2, 4),), {"rtol": 1e-12})],
        "fft_c2c": [((c(3, 4),), whole), ((c(5),), {"dims": (0,), "norm": "backward",
                                                  "inverse": True})],
        "fft_r2c": [((r(3, 4),), {"dims": (0, 1), "norm": "backward"}),
                    ((r(2, 5),), {"dims": (1,), "norm": "forward"})],
        "fft_c2r": [((c(2, 3),), {"dims": (0, 1), "norm": "backward", "n": 4}),
                    ((c(2, 3),), {"dims": (1,), "norm": "ortho", "n": 5})],
    }


def _rest() -> dict[str, list[Sample]]:
    integer: list[Sample] = [((ints(8, 2, 3), ints(3, 3)), {})]
    out: dict[str, list[Sample]] = {
        "scatter_into": [
            ((r(3, 4), r(3)), {"steps": ((OPS["select"], {"dim": 1, "index": 2}, -1),)}),
            ((r(3, 4), r(2, 2)), {"steps": ((OPS["slice"], {"index": (slice(0, 2), slice(0, 4))},
                                             -1), (OPS["slice"], {"index": (
                                                 slice(0, 2), slice(0, 4, 2))}, -1))})],
        "shown": [((r(3, 4),), {"steps": ((OPS["select"], {"dim": 1, "index": 2}, -1),)})],
        "polygamma": [((pos(2, 3),), {"n": 1})],
        "xlogy": [((pos(2, 3), pos(3)), {})],
        "abs": [((r(2, 3),), {}), ((c(2, 3),), {})], "sgn": [((r(2, 3),), {}), ((c(2, 3),), {})],
        "conj": [((c(2, 3),), {})], "real": [((c(2, 3),), {})], "imag": [((c(2, 3),), {})],
        "to_complex": [((r(2, 3),), {})], "angle": [((c(2, 3),), {})],
        "to_dtype": [((r(2, 3),), {"dtype": np.dtype(np.float64)})],
        "to_whole": [((r(2, 3),), {"dtype": np.dtype(np.int64)})],
        "linear_scan": [((r(2, 4), r(2, 4)), {"dim": 1})],
        "cumsum": [((r(2, 3),), {"dim": 1}), ((r(),), {"dim": 0})],
        "cumprod": [((r(2, 3),), {"dim": 1}), ((np.array([[0.0, 2.0, 0.0, 3.0]]),), {"dim": 1})],
        "logcumsumexp": [((r(2, 3),), {"dim": 1})],
        "cummax": [((r(2, 4),), {"dim": 1})], "cummin": [((r(2, 4),), {"dim": 1})],
    }
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
                 "bitwise_right_shift", "gcd", "lcm"):
        out[name] = integer
    out["bitwise_not"] = [((ints(8, 2, 3),), {})]
    for name in ("isinf", "isfinite", "signbit"):
        out[name] = [((r(2, 3),), {})]
    out["logical_xor"] = [((mask(2, 3), mask(3)), {})]
    return out


def table() -> dict[str, list[Sample]]:
    """Samples by op name, for every registered op that has any, those that load late too."""
    ops = importlib.import_module("adjoint.ops").__path__
    names = [f"adjoint.ops.{module.name}" for module in pkgutil.iter_modules(ops)]
    for name in (*names, "adjoint.func.collectives"):
        importlib.import_module(name)
    rows: dict[str, list[Sample]] = {}
    for part in (_losses, _reductions, _views, _indexing, _products, _networks, _images, _systems,
                 _rest):
        rows.update(part())
    for name, op in OPS.items():
        if op.domain is not None:
            rows[name] = op.domain()
        elif op.scalar is not None and name not in rows:
            rows[name] = pointwise_samples(op)
    return rows
