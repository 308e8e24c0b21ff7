"""`jax.example_libraries.stax`: layers as pairs (init, apply), and how to join them.

init(key, input_shape) -> (output_shape, params); apply(params, inputs, rng=...) -> outputs. A
batch axis in a shape is -1.
"""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.errors import missing as _missing
from adjoint.jax import lax as _lax
from adjoint.jax import nn as _nn
from adjoint.jax import numpy as _jnp
from adjoint.jax import random
from adjoint.jax.nn.initializers import glorot_normal, normal, ones, zeros

jnp: Any = _jnp
lax: Any = _lax


# ------------------------------------------------------------------ layers
def Dense(out_dim: int, W_init: Any = None, b_init: Any = None) -> Any:
    """x W + b."""
    weights, biases = W_init or glorot_normal(), b_init or normal()

    def init(rng: Any, input_shape: Any) -> Any:
        k1, k2 = random.split(rng)
        return (*input_shape[:-1], out_dim), (weights(k1, (input_shape[-1], out_dim)),
                                              biases(k2, (out_dim,)))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        w, b = params
        return jnp.dot(inputs, w) + b
    return init, apply


def _out_length(n: int, k: int, s: int, padding: Any, i: int) -> int:
    low, high = padding[i] if not isinstance(padding, str) else lax.padtype_to_pads(
        [n], [k], [s], padding)[0]
    return (n + low + high - k) // s + 1


def _conv_layer(dimension_numbers: Any, out_chan: int, filter_shape: Any, steps: Any, W_init: Any,
                b_init: Any, length: Any, run: Any) -> Any:
    """A layer of `run(inputs, weights)`; `length(size, kernel, step, axis)` is an output's."""
    lhs, rhs, out = dimension_numbers
    weights = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))
    biases = b_init or normal(1e-6)

    def init(rng: Any, input_shape: Any) -> Any:
        sizes = iter(filter_shape)
        kernel = tuple(out_chan if c == "O" else input_shape[lhs.index("C")] if c == "I" else
                       next(sizes) for c in rhs)
        space = [c for c in rhs if c not in "OI"]
        lengths = {c: length(input_shape[lhs.index(c)], k, s, i) for i, (c, k, s) in enumerate(
            zip(space, filter_shape, steps, strict=True))}
        shape = tuple(input_shape[lhs.index("N")] if c == "N" else out_chan if c == "C" else
                      lengths[c] for c in out)
        k1, k2 = random.split(rng)
        return shape, (weights(k1, kernel), biases(k2, tuple(out_chan if c == "C" else 1
                                                             for c in out)))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        w, b = params
        return run(inputs, w) + b
    return init, apply


def GeneralConv(dimension_numbers: Any, out_chan: int, filter_shape: Any, strides: Any = None,
                padding: Any = "VALID", W_init: Any = None, b_init: Any = None) -> Any:
    """A convolution in any layout."""
    steps = strides or (1,) * len(filter_shape)
    return _conv_layer(
        dimension_numbers, out_chan, filter_shape, steps, W_init, b_init,
        lambda n, k, s, i: _out_length(n, k, s, padding, i),
        lambda x, w: lax.conv_general_dilated(x, w, steps, padding,
                                              dimension_numbers=dimension_numbers))


def Conv(out_chan: int, filter_shape: Any, strides: Any = None, padding: Any = "VALID",
         W_init: Any = None, b_init: Any = None) -> Any:
    """A convolution of images (batch, height, width, channels)."""
    return GeneralConv(("NHWC", "HWIO", "NHWC"), out_chan, filter_shape, strides, padding,
                       W_init, b_init)


def GeneralConvTranspose(dimension_numbers: Any, out_chan: int, filter_shape: Any,
                         strides: Any = None, padding: Any = "VALID", W_init: Any = None,
                         b_init: Any = None) -> Any:
    """A transposed convolution in any layout."""
    steps = strides or (1,) * len(filter_shape)
    return _conv_layer(
        dimension_numbers, out_chan, filter_shape, steps, W_init, b_init,
        lambda n, k, s, i: n * s + (max(k - s, 0) if padding == "VALID" else 0),
        lambda x, w: lax.conv_transpose(x, w, steps, padding, dimension_numbers=dimension_numbers))


def Conv1DTranspose(out_chan: int, filter_shape: Any, strides: Any = None, padding: Any = "VALID",
                    W_init: Any = None, b_init: Any = None) -> Any:
    """A transposed convolution of sequences (batch, length, channels)."""
    return GeneralConvTranspose(("NHC", "HIO", "NHC"), out_chan, filter_shape, strides, padding,
                                W_init, b_init)


def ConvTranspose(out_chan: int, filter_shape: Any, strides: Any = None, padding: Any = "VALID",
                  W_init: Any = None, b_init: Any = None) -> Any:
    """A transposed convolution of images."""
    return GeneralConvTranspose(("NHWC", "HWIO", "NHWC"), out_chan, filter_shape, strides, padding,
                                W_init, b_init)


def BatchNorm(axis: Any = (0, 1, 2), epsilon: float = 1e-5, center: bool = True,
              scale: bool = True, beta_init: Any = zeros, gamma_init: Any = ones) -> Any:
    """Each batch to mean 0 and variance 1, then scaled and shifted."""
    axes = (axis,) if jnp.isscalar(axis) else tuple(axis)

    def init(rng: Any, input_shape: Any) -> Any:
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axes)
        k1, k2 = random.split(rng)
        return input_shape, (beta_init(k1, shape) if center else (),
                             gamma_init(k2, shape) if scale else ())

    def apply(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        side = tuple(None if i in axes else slice(None) for i in range(jnp.ndim(x)))
        z = _nn.standardize(x, axes, epsilon=epsilon)
        z = gamma[side] * z if scale else z
        return z + beta[side] if center else z
    return init, apply


def elementwise(fun: Any, **fun_kwargs: Any) -> Any:
    """A layer without parameters."""
    return (lambda rng, input_shape: (input_shape, ()),
            lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs))


Tanh, Exp = elementwise(jnp.tanh), elementwise(jnp.exp)
Relu, Sigmoid, Elu, LeakyRelu = (elementwise(f) for f in (
    _nn.relu, _nn.sigmoid, _nn.elu, _nn.leaky_relu))
LogSoftmax, Softmax = (elementwise(f, axis=-1) for f in (_nn.log_softmax, _nn.softmax))
Softplus, Selu, Gelu = (elementwise(f) for f in (_nn.softplus, _nn.selu, _nn.gelu))


def _pooling(reducer: Any, init_val: Any, rescaler: Any = None) -> Any:
    def layer(window_shape: Any, strides: Any = None, padding: str = "VALID", spec: Any = None
              ) -> Any:
        spec = spec or "NHWC"
        sizes = dict(zip((c for c in spec if c not in "NC"), zip(
            window_shape, strides or (1,) * len(window_shape), strict=True), strict=True))
        dims = tuple(sizes.get(c, (1, 1))[0] for c in spec)
        steps = tuple(sizes.get(c, (1, 1))[1] for c in spec)
        rescale = rescaler(dims, steps, padding) if rescaler else None

        def init(rng: Any, input_shape: Any) -> Any:
            shape = tuple(n if c in "NC" else _out_length(n, k, s, padding, 0)
                          for n, k, s, c in zip(input_shape, dims, steps, spec, strict=True))
            return shape, ()

        def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
            out = lax.reduce_window(inputs, init_val, reducer, dims, steps, padding)
            return rescale(out, inputs, spec) if rescale else out
        return init, apply
    return layer


def _rescale(dims: Any, strides: Any, padding: Any) -> Any:
    def run(outputs: Any, inputs: Any, spec: Any) -> Any:
        shape = tuple(n if c not in "NC" else 1 for n, c in zip(inputs.shape, spec, strict=True))
        return outputs / lax.reduce_window(jnp.ones(shape), 0.0, lax.add, dims, strides, padding)
    return run


MaxPool = _pooling(lax.max, -jnp.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, _rescale)
Identity = (lambda rng, input_shape: (input_shape, ()), lambda params, inputs, **kwargs: inputs)
Flatten = (lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
           lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)))


def FanOut(num: int) -> Any:
    """The input, `num` times."""
    return (lambda rng, input_shape: ([input_shape] * num, ()),
            lambda params, inputs, **kwargs: [inputs] * num)


def _sum(params: Any, inputs: Any, **kwargs: Any) -> Any:
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    return total


FanInSum = (lambda rng, input_shape: (input_shape[0], ()), _sum)


def FanInConcat(axis: int = -1) -> Any:
    """The inputs joined along an axis."""
    def init(rng: Any, input_shape: Any) -> Any:
        at = axis % len(input_shape[0])
        size = sum(s[at] for s in input_shape)
        return (*input_shape[0][:at], size, *input_shape[0][at + 1:]), ()
    return init, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Any:
    """Elements kept with probability `rate` in training, and scaled up; needs `rng=`."""
    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError("Dropout layer requires apply_fun to be called with a PRNG key "
                             "argument: apply_fun(params, inputs, rng) with a key from "
                             "jax.random")
        if mode != "train":
            return inputs
        keep = random.bernoulli(rng, rate, inputs.shape)
        return jnp.where(keep, inputs / rate, 0)
    return lambda rng, input_shape: (input_shape, ()), apply


# ------------------------------------------------------------------ joins
def serial(*layers: Any) -> Any:
    """Layers one after another."""
    inits, applies = zip(*layers, strict=True)

    def init(rng: Any, input_shape: Any) -> Any:
        params = []
        for f in inits:
            rng, layer_rng = random.split(rng)
            input_shape, p = f(layer_rng, input_shape)
            params.append(p)
        return input_shape, params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.pop("rng", None)
        rngs = random.split(rng, len(applies)) if rng is not None else (None,) * len(applies)
        for f, p, r in zip(applies, params, rngs, strict=True):
            inputs = f(p, inputs, rng=r, **kwargs)
        return inputs
    return init, apply


def parallel(*layers: Any) -> Any:
    """Layers side by side, each with its own input."""
    inits, applies = zip(*layers, strict=True)

    def init(rng: Any, input_shape: Any) -> Any:
        rngs = random.split(rng, len(inits))
        found = [f(r, s) for f, r, s in zip(inits, rngs, input_shape, strict=True)]
        return [s for s, _ in found], tuple(p for _, p in found)

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.pop("rng", None)
        rngs = random.split(rng, len(applies)) if rng is not None else (None,) * len(applies)
        return [f(p, x, rng=r, **kwargs) for f, p, x, r in zip(applies, params, inputs, rngs,
                                                               strict=True)]
    return init, apply


def shape_dependent(make_layer: Any) -> Any:
    """A layer that is made of the shape of its input."""
    return (lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
            lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs))


__getattr__ = _missing("adjoint.jax.example_libraries.stax")
