"""`jax.example_libraries.optimizers`: triples (init, update, get_params) over trees.

The rules: Nesterov 1983; Duchi, Hazan, Singer 2011 (Adagrad); Tieleman and Hinton 2012 (RMSProp);
Kingma and Ba 2015 (Adam, Adamax); Anil, Gupta, Koren, Singer 2019 (SM3).
"""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax.tree_util import (
    register_pytree_node,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

jnp: Any = _jnp
Schedule = Callable[[Any], Any]


class Optimizer(NamedTuple):
    """init(params) -> state, update(step, grads, state) -> state, get_params(state)."""

    init_fn: Any
    update_fn: Any
    params_fn: Any


class OptimizerState(NamedTuple):
    """The states of all leaves, the structure of the parameters and that of one leaf's state."""

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


register_pytree_node(OptimizerState, lambda s: ((s.packed_state,), (s.tree_def, s.subtree_defs)),
                     lambda meta, xs: OptimizerState(xs[0], *meta))


class JoinPoint:
    """A leaf that holds a tree."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Decorator: an optimizer of one array becomes one of trees of arrays."""
    @wraps(opt_maker)
    def tree_opt_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(x0_tree: Any) -> OptimizerState:
            leaves, tree = tree_flatten(x0_tree)
            states = [tree_flatten(init(x)) for x in leaves]
            return OptimizerState(tuple(tuple(s) for s, _ in states), tree,
                                  tuple(d for _, d in states))

        def tree_update(i: Any, grad_tree: Any, opt_state: OptimizerState) -> OptimizerState:
            packed, tree, subtrees = opt_state
            grads, other = tree_flatten(grad_tree)
            if other != tree:
                raise TypeError("optimizer update function was passed a gradient tree that did not "
                                f"match the parameter tree structure with which it was "
                                f"initialized: parameter tree {tree} and grad tree {other}.")
            new = [tree_flatten(update(i, g, tree_unflatten(d, s)))
                   for g, s, d in zip(grads, packed, subtrees, strict=True)]
            if tuple(d for _, d in new) != tuple(subtrees):
                raise TypeError("optimizer update function produced an output structure that did "
                                "not match its input structure")
            return OptimizerState(tuple(tuple(s) for s, _ in new), tree, subtrees)

        def tree_get_params(opt_state: OptimizerState) -> Any:
            packed, tree, subtrees = opt_state
            return tree_unflatten(tree, [get_params(tree_unflatten(d, s))
                                         for s, d in zip(packed, subtrees, strict=True)])
        return Optimizer(tree_init, tree_update, tree_get_params)
    return tree_opt_maker


@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent."""
    rate = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - rate(i) * g, lambda x: x


@optimizer
def momentum(step_size: Any, mass: Any) -> Any:
    """Gradient descent with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity
    return lambda x: (x, jnp.zeros_like(x)), update, lambda s: s[0]


@optimizer
def nesterov(step_size: Any, mass: Any) -> Any:
    """Gradient descent with Nesterov's momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity
    return lambda x: (x, jnp.zeros_like(x)), update, lambda s: s[0]


@optimizer
def adagrad(step_size: Any, momentum: Any = 0.9) -> Any:
    """Steps over the root of the sum of squares."""
    rate = make_schedule(step_size)

    def init(x: Any) -> Any:
        return x, jnp.zeros_like(x), jnp.zeros_like(x)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares + jnp.square(g)
        scale = jnp.where(squares > 0, 1.0 / jnp.sqrt(squares), 0.0)
        m = (1.0 - momentum) * (g * scale) + momentum * m
        return x - rate(i) * m, squares, m
    return init, update, lambda s: s[0]


@optimizer
def rmsprop(step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8) -> Any:
    """Steps over the root of a running mean of squares."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean = state
        mean = mean * gamma + jnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / jnp.sqrt(mean + eps), mean
    return lambda x: (x, jnp.zeros_like(x)), update, lambda s: s[0]


@optimizer
def rmsprop_momentum(step_size: Any, gamma: Any = 0.9, eps: Any = 1e-8, momentum: Any = 0.9) -> Any:
    """RMSProp with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, m = state
        mean = mean * gamma + jnp.square(g) * (1.0 - gamma)
        m = momentum * m + rate(i) * g / jnp.sqrt(mean + eps)
        return x - m, mean, m
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, lambda s: s[0]


@optimizer
def adam(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Any:
    """Running means of gradients and squares, both corrected for their start at zero."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * jnp.square(g) + b2 * v
        first = m / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        second = v / (1 - jnp.asarray(b2, m.dtype) ** (i + 1))
        return x - rate(i) * first / (jnp.sqrt(second) + eps), m, v
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, lambda s: s[0]


@optimizer
def adamax(step_size: Any, b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8) -> Any:
    """Adam with the largest of the decayed gradients in the place of the root of squares."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = jnp.maximum(b2 * v, jnp.abs(g))
        x = x - (rate(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))) * m / (v + eps)
        return x, m, v
    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, lambda s: s[0]


@optimizer
def sm3(step_size: Any, momentum: Any = 0.9) -> Any:
    """Adagrad with one accumulator per row of every axis."""
    rate = make_schedule(step_size)

    def side(i: int, n: int) -> tuple[Any, ...]:
        return (*[None] * i, slice(None), *[None] * (n - i - 1))

    def init(x: Any) -> Any:
        return x, jnp.zeros_like(x), [jnp.zeros(n, dtype=x.dtype) for n in x.shape]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, rows = state
        spread = [v[side(k, g.ndim)] for k, v in enumerate(rows)]
        total = spread[0]
        for v in spread[1:]:
            total = jnp.minimum(total, v)
        total = total + jnp.square(g)
        scale = jnp.where(total > 0, 1.0 / jnp.sqrt(total), 0.0)
        m = (1.0 - momentum) * (g * scale) + momentum * m
        x = x - rate(i) * m
        rows = [total.max([j for j in range(g.ndim) if j != k]) for k in range(g.ndim)]
        return x, m, rows
    return init, update, lambda s: s[0]


# ------------------------------------------------------------------ schedules
def constant(step_size: Any) -> Schedule:
    """The same step always."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """step_size decay_rate^(i / decay_steps)."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False
                       ) -> Schedule:
    """step_size / (1 + decay_rate i / decay_steps)."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0
                     ) -> Schedule:
    """From one step size to another along a power."""
    def schedule(i: Any) -> Any:
        done = jnp.minimum(i, decay_steps) / decay_steps
        return (step_size - final_step_size) * (1 - done) ** power + final_step_size
    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """The value of the interval that a step is in."""
    edges, levels = jnp.array(boundaries), jnp.array(values)
    if not edges.ndim == levels.ndim == 1:
        raise ValueError("boundaries and values must be sequences")
    if edges.shape[0] != levels.shape[0] - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: levels[jnp.sum(i > edges)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule of a number, or the schedule itself."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(type(scalar_or_schedule))


# ------------------------------------------------------------------ gradients and states
def l2_norm(tree: Any) -> Any:
    """The norm of all leaves together."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree_leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients scaled down to a norm, where theirs is larger."""
    norm = l2_norm(grad_tree)
    eps = jnp.finfo(norm.dtype).eps

    def clip(g: Any) -> Any:
        return jnp.where(norm < max_norm, g, g * (max_norm / (norm + eps)))
    return tree_map(clip, grad_tree)


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The state as the parameters' tree with a `JoinPoint` at every leaf."""
    packed, tree, subtrees = opt_state
    return tree_unflatten(tree, [JoinPoint(tree_unflatten(d, s))
                                 for s, d in zip(packed, subtrees, strict=True)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The state of such a tree."""
    points, tree = tree_flatten(marked_pytree)
    states = [tree_flatten(p.subtree) for p in points]
    return OptimizerState(tuple(tuple(s) for s, _ in states), tree, tuple(d for _, d in states))


__getattr__ = _missing("adjoint.jax.example_libraries.optimizers")
