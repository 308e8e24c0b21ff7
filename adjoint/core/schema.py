"""Schemas of operators: `(Tensor x, float k=2.0, *, int n) -> Tensor`, read off a function's
annotations and read back as a signature."""
from __future__ import annotations

import dis
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from adjoint.base.dtypes import DType
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange
from adjoint.base.provenance import is_own_code
from adjoint.core.tensor import Tensor

_SCALARS: dict[Any, str] = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool",
                            str: "str", complex: "complex", DType: "ScalarType"}


def _kind(annotation: Any) -> str | None:
    """The schema's name of an annotation; None where it has none."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if getattr(annotation, "__name__", "") == "device":
        return "Device"
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in inner if a is not type(None)]
        optional = "?" if len(rest) < len(inner) else ""
        if set(rest) == {int, float, bool}:
            return "Scalar" + optional
        below = _kind(rest[0]) if len(rest) == 1 else None
        return below + optional if below is not None else None
    if origin in (list, Sequence) and len(inner) == 1:
        below = _kind(inner[0])
        return None if below is None else f"{below}[]"
    return None


def _result(annotation: Any) -> str:
    """The schema's text for what a function returns."""
    if annotation is None or annotation is type(None):
        return "()"
    if typing.get_origin(annotation) is tuple:
        return f"({', '.join(map(_result, typing.get_args(annotation)))})"
    found = _kind(annotation)
    if found is None:
        raise ArgumentError(f"infer_schema(func): Return has unsupported type {annotation}. The "
                            f"valid types are: {sorted(_SCALARS.values())} and lists of them")
    return found


def _default(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if type(value).__name__ == "device":
        return f'"{value}"'
    if isinstance(value, DType):
        return str(value).rpartition(".")[2]
    return str(value)


def infer_schema(prototype_function: Callable[..., Any], /, *,
                 mutates_args: str | Iterable[str] = (), op_name: str | None = None) -> str:
    """The schema of a function with annotated arguments; `(a!)` marks those that it writes to.

    >>> def scale(x: Tensor, s: float = 1.0) -> Tensor: ...
    >>> infer_schema(scale)
    '(Tensor x, float s=1.0) -> Tensor'
    """
    try:
        signature = inspect.signature(prototype_function, eval_str=True)
    except NameError:                   # annotations that only a type checker can read
        signature = inspect.signature(prototype_function)
    parts: list[str] = []
    every = mutates_args == "unknown"
    named = set() if every else {mutates_args} if isinstance(mutates_args, str) else set(
        mutates_args)
    unknown = named - set(signature.parameters)
    if unknown:
        raise ArgumentError(f"mutates_args should only contain names of arguments, got "
                            f"{sorted(unknown)} beside {list(signature.parameters)}")
    star = False
    for p in signature.parameters.values():
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise ArgumentError("infer_schema(func): We do not support positional-only args, "
                                f"varargs, or varkwargs: got {p}")
        if p.annotation is p.empty:
            raise ArgumentError(f"infer_schema(func): Parameter {p.name} must have a type "
                                "annotation. Got func with signature "
                                f"{inspect.signature(prototype_function)})")
        kind = _kind(p.annotation)
        if kind is None:
            raise ArgumentError(f"infer_schema(func): Parameter {p.name} has unsupported type "
                                f"{p.annotation}. The valid types are: tensors, numbers, bool, "
                                "str, dtype, device, optional ones and lists of them. Got func "
                                f"with signature {inspect.signature(prototype_function)})")
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if p.name in named or every and kind.startswith("Tensor"):
            mark = f"(a{len(parts) - star}!)"
            kind = kind.replace("Tensor", f"Tensor{mark}", 1)
        default = "" if p.default is p.empty else f"={_default(p.default)}"
        parts.append(f"{kind} {p.name}{default}")
    if signature.return_annotation is signature.empty:
        raise ArgumentError("infer_schema(func): No return type annotation was provided. Please "
                            "add one.")
    return f"{op_name or ''}({', '.join(parts)}) -> {_result(signature.return_annotation)}"


_VALUES = {"None": None, "True": True, "False": False}


def _value(text: str) -> Any:
    if text in _VALUES:
        return _VALUES[text]
    if text[:1] in "\"'":
        return text[1:-1]
    if text.startswith("["):
        return [_value(t.strip()) for t in text[1:-1].split(",") if t.strip()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def parsed(schema: str) -> inspect.Signature:
    """The signature that a schema declares; annotations are the schema's own names of types, with
    "!" at the end where the argument is written to.

    >>> parsed("(Tensor(a!) x, *, int n=3) -> ()")
    <Signature (x: 'Tensor!', *, n: 'int' = 3)>
    """
    found = re.fullmatch(r"\s*\((.*)\)\s*->\s*(.+)", schema, re.DOTALL)
    if found is None:
        raise ArgumentError(f"library: {schema!r} is no schema; write one such as "
                            "(Tensor x, int n=3) -> Tensor")
    params: list[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    # commas inside of [..] and (..) belong to a default or an alias
    for part in filter(None, map(str.strip, re.split(r",(?![^\[(]*[\])])", found[1]))):
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        declared, _, name = part.partition("=")[0].strip().rpartition(" ")
        default = part.partition("=")[2].strip()
        written = "!" if "!" in declared else ""
        params.append(inspect.Parameter(
            name, kind, annotation=re.sub(r"\([^)]*\)", "", declared).strip() + written,
            default=_value(default) if default else inspect.Parameter.empty))
    return inspect.Signature(params)


# Parameters that PyTorch's functions take tensors for, and nothing else.
_TENSORS = {"input", "self", "mat1", "mat2", "mat", "vec", "vec1", "vec2", "batch1", "batch2",
            "tensor1", "tensor2", "source", "weight", "bias", "target", "running_mean",
            "running_var", "sorted_sequence", "boundaries"}
_FIRST = {"input", "self", "A", "x"}
_OF_TENSORS = {"shape", "dtype", "ndim", "array", "detach", "level", "strides", "trace"}
_PLAIN_DATA = (str, bytes, dict, list, tuple, int, float, complex, type(None))


# Names whose values may be words although their defaults are none.
_WORDS = re.compile("mode|reduc|approx|driver|index|dtype|device|layout|out|ord|norm|equation|"
                    "padding|side|format|generator|p$")
_KINDS = {"bool": bool, "str": str, "int": int, "float": float}


def _expected(p: inspect.Parameter, value: Any, first: bool) -> str:
    """What the value of a parameter should have been; "" if nothing speaks against it."""
    default = p.default
    if value is default:
        return ""
    many = isinstance(value, Tensor) and value.shape.numel() != 1
    kind = type(default) if default is not p.empty else _KINDS.get(str(p.annotation))
    if kind is bool:
        several = "|" in str(p.annotation) and not isinstance(value, (str, int, float))
        return "" if several or type(value).__name__ in ("bool", "bool_") else "bool"
    if kind is str and p.annotation == "Any":       # a word or a number, as `ord` of norms
        return ""
    if kind is str:
        wrong = not isinstance(value, str) and (value is not None or default is p.empty)
        return "str" if wrong else ""
    if kind is int:
        plain = (str, bytes, dict) if default is not p.empty else (
            str, bytes, dict, list, float, type(None))
        word = isinstance(value, str) and _WORDS.search(p.name)
        return "int" if not word and (many or isinstance(value, plain)) else ""
    if kind is float:
        return "float" if many or isinstance(value, (str, bytes, dict, list, tuple)) else ""
    if first or p.name in _TENSORS:
        optional = value is None and "None" in str(p.annotation)
        return "Tensor" if isinstance(value, _PLAIN_DATA) and not optional else ""
    return "a number" if isinstance(value, str) and not _WORDS.search(p.name) else ""


def blamed(f: Callable[..., Any], args: Any, kwargs: Any) -> DTypeError | None:
    """What to raise in the place of an exception that a function met on its way: the refusal of an
    argument of a wrong type in PyTorch's words, or None where all are of the right one. Nothing is
    looked at before a call fails, so that one that does not fail pays nothing.

    >>> def double(input, times=2): return input * times
    >>> str(blamed(double, ("x",), {}))
    "double(): argument 'input' (position 1) must be Tensor, not str"
    """
    error = sys.exc_info()[1]
    missing = (error.obj if isinstance(error, AttributeError) and error.name in _OF_TENSORS
               else inspect.Parameter.empty)            # what was taken for a tensor, and is none
    try:
        signature = inspect.signature(f)
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return None
    for i, (name, value) in enumerate(given.items()):
        if name == "source" and "destination" in signature.parameters:      # of axes
            continue
        p = signature.parameters[name]
        if p.kind is p.VAR_POSITIONAL and p.name == "tensors":
            wrong = [k for k, x in enumerate(value) if isinstance(x, _PLAIN_DATA) or x is missing]
            if wrong:
                return DTypeError(f"expected Tensor as element {wrong[0]} in argument 0 of "
                                  f"{f.__name__}(), but got {type(value[wrong[0]]).__name__}")
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        wanted = _expected(p, value, i == 0 and name in _FIRST)
        if value is missing and value is not p.default:
            wanted = wanted or "Tensor"
        if wanted:
            position = f" (position {i + 1})" if i < len(args) else ""
            return DTypeError(f"{f.__name__.rstrip('_')}(): argument '{name}'{position} must be "
                              f"{wanted}, not {type(value).__name__}")
    return None


_HOME = os.path.dirname(os.__file__)
_NUMPY = os.path.dirname(np.__file__)
_TREE = ((TypeError, DTypeError), (AttributeError, DTypeError), (IndexError, IndexOutOfRange),
         (Exception, ArgumentError))


def _foreign(code: types.CodeType) -> bool:
    """Whether code is neither ours nor NumPy's nor of Python's library: a callback's."""
    name = code.co_filename
    return not (is_own_code(code) or name.startswith((_NUMPY, "<frozen"))
                or name.startswith(_HOME) and "site-packages" not in name)


def _shown(value: Any) -> str:
    """An argument as errors show it."""
    if isinstance(value, (Tensor, np.ndarray)):
        dtype = getattr(value.dtype, "name", value.dtype)
        return f"{type(value).__name__} {dtype} {list(value.shape)}"
    text = repr(value) if isinstance(value, (int, float, complex, str, bytes)) else ""
    return f"{type(value).__name__} {text}".rstrip() if len(text) < 30 else type(value).__name__


def retold(f: Callable[..., Any], args: Any, kwargs: Any,
           error: BaseException | None) -> Exception | None:
    """What to raise in the place of an exception that NumPy or our own insides made of arguments
    which do not fit: the same in our tree, with the call. None where it is of our tree, where
    Python refused the call itself, and where code that is not ours is on the way.

    >>> import adjoint as ad
    >>> ad.narrow(ad.ones(2), 0, (), 1)
    Traceback (most recent call last):
    adjoint.base.errors.DTypeError: narrow(): ...; called with (Tensor float32 [2], int 0, ...
    """
    tb = error.__traceback__ if error is not None else None
    if tb is None or type(error).__module__.split(".")[0] not in (
            "builtins", "numpy") or isinstance(error, np.linalg.LinAlgError):
        return None
    while tb is not None:
        if _foreign(tb.tb_frame.f_code):
            return None
        code, place, tb = tb.tb_frame.f_code, tb.tb_lasti, tb.tb_next
    kind = next(ours for theirs, ours in _TREE if isinstance(error, theirs))
    if is_own_code(code) and code.co_code[place] == dis.opmap["RAISE_VARARGS"]:
        return kind(str(error))                             # our own words
    given = ", ".join([*map(_shown, args), *(f"{k}={_shown(v)}" for k, v in kwargs.items())])
    taken = [str(p).partition(":")[0].partition("=")[0]
             for p in inspect.signature(f).parameters.values()]
    name = f.__name__ if f.__name__.startswith("__") else f.__name__.rstrip("_")
    said = str(error).removeprefix(f"{f.__name__}() ")
    return kind(f"{name}(): {said}; called with ({given}) where ({', '.join(taken)}) are taken")


__all__ = ["blamed", "infer_schema", "parsed", "retold"]
