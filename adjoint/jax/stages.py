"""`jax.stages`: what `jit(f).trace(...)`, `.lower()` and `.compile()` give. No program of a machine
is in them: the compiled function is the function, for arguments of the types it was asked for."""
from __future__ import annotations

from dataclasses import dataclass as _dataclass
from typing import Any

from adjoint.base.errors import NotSupported as _NotSupported
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._api import Jitted as Wrapped
from adjoint.jax._api import eval_shape as _eval_shape
from adjoint.jax._array import Array as _Array
from adjoint.jax._array import ShapedArray as _ShapedArray
from adjoint.jax._array import as_array as _as_array
from adjoint.jax._array import is_array_like as _is_array_like
from adjoint.jax._array import is_traced as _is_traced
from adjoint.jax._array import tracer_kind as _tracer_kind
from adjoint.jax._flat import is_key as _is_key
from adjoint.jax.tree_util import PyTreeDef as _PyTreeDef
from adjoint.jax.tree_util import flat as _flat
from adjoint.jax.tree_util import keystr as _keystr
from adjoint.jax.tree_util import structures_differ as _structures_differ
from adjoint.jax.tree_util import tree_leaves_with_path as _with_path
from adjoint.jax.tree_util import tree_map as _tree_map


@_dataclass(frozen=True)
class ArgInfo:
    """Type of an argument, and whether it was donated."""

    _aval: Any
    donated: bool

    @property
    def shape(self) -> Any:
        """Sizes of the axes."""
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self._aval.dtype


def _aval(x: Any) -> Any:
    if _is_key(x):
        return x.aval
    if not _is_array_like(x):                             # (a ShapeDtypeStruct)
        return _ShapedArray(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))
    a = _as_array(x)
    return _ShapedArray(a.shape, a.dtype, weak_type=a.weak_type)


class Traced:
    """A jitted function with the types of its arguments; `lower()`.

    >>> from adjoint import jax
    >>> made = jax.jit(lambda x: x + 1).trace(jax.ShapeDtypeStruct((2,), "float32"))
    >>> made.out_info
    ShapeDtypeStruct(shape=(2,), dtype=float32)
    >>> made.lower().compile()(jax.numpy.zeros(2))
    Array([1., 1.], dtype=float32)
    """

    def __init__(self, run: Wrapped, args: Any, kwargs: Any) -> None:
        self._run, self._given = run, (args, kwargs)
        self.fun_name = getattr(run.fun, "__name__", "fun")
        self.out_info = _eval_shape(self._call, *self._moving(args, kwargs))
        given = self._moving(args, kwargs)
        self.in_avals = _tree_map(_aval, given)
        self.in_tree = _PyTreeDef(_flat(given)[1])
        self.out_tree = _PyTreeDef(_flat(self.out_info)[1])

    def _moving(self, args: Any, kwargs: Any) -> Any:
        """(args, kwargs) that are not static."""
        return (tuple(a for i, a in enumerate(args) if i not in self._run.nums),
                {k: v for k, v in kwargs.items() if k not in self._run.names})

    def _names(self) -> list[str]:
        """Names of the arguments by position, for messages."""
        import inspect
        try:
            order = list(inspect.signature(self._run.fun).parameters)
        except (TypeError, ValueError):
            order = []
        return [n for i, n in enumerate(order) if i not in self._run.nums]

    def _call(self, args: Any, kwargs: Any) -> Any:
        """The function of the arguments that move, inside of nothing."""
        full, named = self._given
        rest = iter(args)
        return self._run.fun(
            *[a if i in self._run.nums else next(rest) for i, a in enumerate(full)],
            **{k: kwargs.get(k, v) for k, v in named.items()})

    @property
    def jaxpr(self) -> Any:
        """The program of the function."""
        from adjoint.jax._record import make_jaxpr
        args, kwargs = self._given
        return make_jaxpr(self._run.fun, tuple(self._run.nums))(*args, **kwargs)

    @property
    def args_info(self) -> Any:
        """An `ArgInfo` per argument."""
        names, donated = self._names(), self._run.donated

        def told(tree: Any, at: Any) -> Any:
            return _tree_map(lambda v: ArgInfo(v, at in donated), tree)
        return (tuple(told(a, names[i] if i < len(names) else i)
                      for i, a in enumerate(self.in_avals[0])),
                {k: told(a, k) for k, a in self.in_avals[1].items()})

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """Places of the leaves that were donated."""
        infos = _flat(self.args_info)[0]
        return tuple(i for i, a in enumerate(infos) if a.donated)

    def eval_shape(self) -> Any:
        """`out_info`."""
        return self.out_info

    def lower(self, *, lowering_platforms: Any = None, _private_parameters: Any = None) -> Lowered:
        """The next stage."""
        return Lowered(self)


class Lowered:
    """What `jit(f).lower(...)` gives."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced

    def __getattr__(self, name: str) -> Any:
        if name in ("in_avals", "in_tree", "out_tree", "out_info", "args_info", "donate_argnums"):
            return getattr(self._traced, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def compile(self, compiler_options: Any = None, *, device_assignment: Any = None) -> Compiled:
        """The function for these types."""
        if compiler_options:
            from adjoint.jax.errors import JaxRuntimeError
            name = next(iter(compiler_options))
            raise JaxRuntimeError(f"INVALID_ARGUMENT: No such compile option: '{name}'")
        return Compiled(self._traced)

    def cost_analysis(self) -> dict[str, float]:
        """Nothing is known of the cost: an empty dictionary."""
        return {}

    def as_text(self, dialect: Any = None, *, debug_info: bool = False) -> str:
        """NotSupported: no program is made."""
        raise _NotSupported("jit(f).lower(...).as_text(): nothing is compiled here, functions run "
                            "as they are written; jax.make_jaxpr(f)(...) gives the program of one")


class Compiled(Lowered):
    """A function for arguments of given types: TypeError for others, and under transforms."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traced = self._traced
        leaves, spec = _flat((args, kwargs))
        wanted = _flat(traced.in_avals)[1]
        if spec != wanted:
            where, gap = _structures_differ(wanted, spec)
            raise TypeError("Function compiled with input pytree does not match the input pytree "
                            f"it was called with. There are mismatches, including:\n"
                            f"    * at {'kwargs' if where.startswith('[1]') else 'args'}, {gap}")
        if any([type(x) is _Array and _is_traced(x) for x in leaves]):
            kind = next(_tracer_kind(x) for x in leaves if type(x) is _Array and _is_traced(x))
            raise TypeError("Cannot apply JAX transformations to a function lowered and compiled "
                            "for a particular signature. Detected argument of Tracer type "
                            f"{kind}.")
        names, gaps = traced._names(), []
        for (path, x), a in zip(_with_path((args, kwargs)), _flat(traced.in_avals)[0], strict=True):
            b = _aval(x)
            if (b.shape, b.dtype) != (a.shape, a.dtype):
                at = path[1].idx if path[0].idx == 0 else path[1].key
                at = names[at] if isinstance(at, int) and at < len(names) else at
                gaps.append(f"Argument '{at}{_keystr(path[2:])}' compiled with {a.str_short()} and "
                            f"called with {b.str_short()}")
        if gaps:
            raise TypeError("Argument types differ from the types for which this computation was "
                            "compiled. The mismatches are:\n" + "\n".join(gaps))
        full, named = traced._given
        rest = iter(args)
        return traced._run(*[a if i in traced._run.nums else next(rest)
                             for i, a in enumerate(full)], **{**named, **kwargs})

    def memory_analysis(self) -> None:
        """None: nothing is known."""

    def runtime_executable(self) -> None:
        """None: there is none."""


__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
__getattr__ = _lacking("stages")
