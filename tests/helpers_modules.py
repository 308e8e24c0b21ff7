"""Every layer of PyTorch's own table of modules, on its sample inputs, beside PyTorch.

`python tests/helpers_modules.py [name ...] [--mode call] [--dtype float64] [--all]` prints what
differs. The samples come from `torch.testing._internal.common_modules.module_db`, which is inside
PyTorch's wheel. Both libraries start every sample from the same seed, so weights, dropout masks and
sampled pooling regions are the same numbers.
"""

from __future__ import annotations

import argparse
import copy
import io
import pickle
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from helpers_opinfo import Verdict
from helpers_opinfo_values import (
    TOLERANCE,
    Unsupported,
    array,
    by_pytorch,
    compare_gradients,
    convert,
    differs,
    exchanged,
    flat,
    gradients_differ,
    is_tensor,
)

SEED = 7


def module_table() -> list[Any]:
    """PyTorch's layers; raises ImportError where PyTorch or expecttest is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    return list(module_db)


def seeded(ad: Any) -> None:
    """Both libraries at the same place of the same stream of random numbers."""
    import torch

    torch.manual_seed(SEED)
    ad.manual_seed(SEED)


def fields(of: Any) -> dict[str, Any]:
    return {k: getattr(of, k) for k in getattr(of, "__slots__", None) or vars(of)}


def _layer(value: Any, ad: Any) -> Any:
    """A layer that is an argument of another one: the same class with the same numbers."""
    settings = dict(
        d_model=value.self_attn.embed_dim, nhead=value.self_attn.num_heads,
        dim_feedforward=value.linear1.out_features, dropout=value.dropout.p,
        activation=_function(value.activation, ad), layer_norm_eps=value.norm1.eps,
        batch_first=value.self_attn.batch_first, norm_first=value.norm_first,
        bias=value.linear1.bias is not None, dtype=convert(value.linear1.weight.dtype, ad, []))
    made = getattr(ad.nn, type(value).__name__)(**settings).train(value.training)
    made.load_state_dict({k: convert(v.detach(), ad, []) for k, v in value.state_dict().items()})
    return made


def _function(value: Any, ad: Any) -> Any:
    name = getattr(value, "__name__", "")
    for where in (ad.nn.functional, ad):
        if (value.__module__ or "").startswith("torch") and hasattr(where, name):
            return getattr(where, name)
    return value


def argument(value: Any, ad: Any, leaves: list[tuple[Any, Any]]) -> Any:
    """An argument of a layer of PyTorch as one of ours."""
    import torch

    if isinstance(value, torch.nn.Module):
        if not hasattr(value, "self_attn"):
            raise Unsupported(type(value).__name__)
        return _layer(value, ad)
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(argument(v, ad, leaves) for v in value)
    if isinstance(value, dict):
        return {k: argument(v, ad, leaves) for k, v in value.items()}
    if callable(value) and not isinstance(value, type | torch.dtype):
        return _function(value, ad)
    return convert(value, ad, leaves)


def _dtype(given: Any) -> Any:
    """The floating dtype of the operands: the table's layers are moved to it."""
    import torch

    found = [t.dtype for t in flat((given.args, given.kwargs)) if is_tensor(t)]
    floating = [d for d in found if d.is_floating_point or d.is_complex]
    return floating[0] if floating else torch.get_default_dtype()


class Pair:
    """One sample: the layer of PyTorch and ours, made and seeded alike, and their arguments."""

    def __init__(self, info: Any, sample: Any, ad: Any, training: bool) -> None:
        made, given = sample.constructor_input, sample.forward_input
        self.ad, self.info = ad, info
        self.leaves: list[tuple[Any, Any]] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seeded(ad)
            self.theirs = by_pytorch(lambda: info.module_cls(*made.args, **made.kwargs))
        cls = getattr(ad.nn, info.module_cls.__name__)
        args, kwargs = argument((made.args, made.kwargs), ad, [])
        seeded(ad)
        self.mine = cls(*args, **kwargs)
        dtype = _dtype(given)
        self.theirs.to(dtype).train(training)
        self.mine.to(convert(dtype, ad, [])).train(training)
        own, here = {}, {}
        for t in flat((given.args, given.kwargs)):
            if is_tensor(t) and id(t) not in own:       # (one tensor may be two operands)
                own[id(t)] = t.detach().requires_grad_(t.requires_grad)
                here[id(t)] = convert(own[id(t)], ad, self.leaves)
        self.given = exchanged((given.args, dict(given.kwargs)), own)
        self.args = exchanged((given.args, dict(given.kwargs)), here)

    def run(self, mine: Any = None, theirs: Any = None) -> tuple[list[Any], list[Any]]:
        """Results of both; `mine` and `theirs` stand in for the layers."""
        seeded(self.ad)
        args, kwargs = self.given
        want = by_pytorch(lambda: (theirs or self.theirs)(*args, **kwargs))
        args, kwargs = self.args
        got = (mine or self.mine)(*args, **kwargs)
        return list(flat(got)), list(flat(want))


def same(got: list[Any], want: list[Any], what: str = "result") -> str:
    if len(got) != len(want):
        return f"{len(got)} {what}s instead of {len(want)}"
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if reason := differs(g, w, f"{what} {k}"):
            return reason
        if is_tensor(w) and bool(g.requires_grad) != bool(w.requires_grad):
            return f"{what} {k}: requires_grad {g.requires_grad} instead of {w.requires_grad}"
    return ""


def same_state(pair: Pair) -> str:
    """state_dict: names in order, values, and what of the parameters asks for gradients."""
    mine, theirs = pair.mine.state_dict(), pair.theirs.state_dict()
    if list(mine) != list(theirs):
        return f"state_dict {list(mine)} instead of {list(theirs)}"
    for name in theirs:
        if reason := differs(mine[name], theirs[name], name):
            return reason
    asks = [[(n, p.requires_grad) for n, p in m.named_parameters()]
            for m in (pair.mine, pair.theirs)]
    return "" if asks[0] == asks[1] else f"parameters {asks[0]} instead of {asks[1]}"


def parameters(pair: Pair) -> list[tuple[Any, Any]]:
    theirs = dict(pair.theirs.named_parameters())
    return [(p, theirs[n]) for n, p in pair.mine.named_parameters()]


def check_call(pair: Pair) -> str:
    """Results, gradients of operands and parameters, and the state afterwards."""
    uninitialized = pair.info.is_lazy
    if not uninitialized and (reason := same_state(pair)):
        return f"as made: {reason}"
    got, want = pair.run()
    if reason := same(got, want):
        return reason
    if reason := same_state(pair):
        return f"afterwards: {reason}"
    leaves = pair.leaves + [(m, t) for m, t in parameters(pair) if t.requires_grad]
    return compare_gradients(got, want, leaves, pair.ad)


def _double(library: Any, outs: list[Any], leaves: list[Any], seeds: list[Any]) -> list[Any]:
    """Gradients of the squares of the gradients."""
    first = library.autograd.grad(outs, leaves, seeds, create_graph=True, allow_unused=True)
    first = [g for g in first if g is not None and g.requires_grad]
    if not first:
        return [None] * len(leaves)              # (linear: nothing depends on the operands)
    total = sum((g * g.conj()).real.sum() if g.is_complex() else (g * g).sum() for g in first)
    return list(library.autograd.grad(total, leaves, allow_unused=True))


def check_second_order(pair: Pair) -> str:
    """Second derivatives of operands and parameters."""
    import torch

    if not pair.info.supports_gradgrad:
        raise Unsupported("no second derivative in PyTorch")
    got, want = pair.run()
    pairs = [(g, w) for g, w in zip(got, want, strict=True) if is_tensor(w) and w.requires_grad]
    leaves = pair.leaves + [(m, t) for m, t in parameters(pair) if t.requires_grad]
    if not pairs or not leaves:
        raise Unsupported("no gradient")
    rng = np.random.default_rng(5)
    seeds = [rng.standard_normal(tuple(w.shape)).astype(array(w).dtype) for _, w in pairs]
    want = by_pytorch(lambda: _double(torch, [w for _, w in pairs], [t for _, t in leaves],
                                      [torch.from_numpy(np.asarray(s)) for s in seeds]))
    got = _double(pair.ad, [g for g, _ in pairs], [m for m, _ in leaves],
                  [pair.ad.from_numpy(np.asarray(s)) for s in seeds])
    return gradients_differ(got, want, "second derivative")


def strided(value: Any, ad: Any) -> Any:
    """The same arguments, each tensor every second element of a larger one."""
    if is_tensor(value):
        if value.ndim == 0:
            return value
        wide = ad.repeat_interleave(value.detach(), 2, dim=-1)[..., ::2]
        return wide.requires_grad_(value.requires_grad)
    if isinstance(value, tuple | list):
        return type(value)(strided(v, ad) for v in value)
    if isinstance(value, dict):
        return {k: strided(v, ad) for k, v in value.items()}
    return value


def check_strided(pair: Pair) -> str:
    """Operands that are not contiguous: the same results and gradients."""
    args, kwargs = pair.args
    pair.args = strided(args, pair.ad), strided(kwargs, pair.ad)
    of = {id(a): b for a, b in zip(flat((args, kwargs)), flat(pair.args), strict=True)}
    pair.leaves = [(of[id(m)], t) for m, t in pair.leaves]
    return check_call(pair)


def check_channels_last(pair: Pair) -> str:
    """Images with channels last: the same results, and the same order in memory."""
    import torch

    def last(library: Any, value: Any) -> Any:
        if is_tensor(value) and value.ndim in (4, 5):
            kind = library.channels_last if value.ndim == 4 else library.channels_last_3d
            new = value.detach().contiguous(memory_format=kind)
            return new.requires_grad_(value.requires_grad)
        return value

    found = []
    for library, (args, kwargs) in ((pair.ad, pair.args), (torch, pair.given)):
        found.append((tuple(last(library, a) for a in args),
                      {k: last(library, v) for k, v in kwargs.items()}))
    if not any(is_tensor(a) and a.ndim in (4, 5) for a in pair.given[0]):
        raise Unsupported("no image")
    pair.args, pair.given = found
    pair.leaves = [(a, b) for a, b in zip(flat(pair.args), flat(pair.given), strict=True)
                   if is_tensor(b) and b.requires_grad]
    got, want = pair.run()
    if reason := same(got, want):
        return reason
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        # (volumes: it depends on the kernel that PyTorch picks)
        if is_tensor(w) and w.ndim == 4 and w.numel() > 1 and g.stride() != w.stride():
            return f"result {k}: strides {tuple(g.stride())} instead of {tuple(w.stride())}"
    return check_call(pair)


def check_copies(pair: Pair) -> str:
    """A pickled and a deep copy, PyTorch's state loaded and ours loaded there, say the same."""
    import torch

    pair.run()                                  # (a lazy layer has no parameters before)
    if reason := _printed(pair):
        return reason
    for name, copied in (("pickle", lambda m: pickle.loads(pickle.dumps(m))),
                         ("deepcopy", copy.deepcopy)):
        try:
            twin = copied(pair.theirs)
        except Exception as error:
            raise Unsupported("PyTorch cannot copy it") from error
        got, want = pair.run(copied(pair.mine), twin)
        if reason := same(got, want):
            return f"{name}: {reason}"
    theirs = io.BytesIO()
    torch.save(pair.theirs.state_dict(), theirs)
    theirs.seek(0)
    pair.mine.load_state_dict(pair.ad.load(theirs))
    mine = io.BytesIO()
    pair.ad.save(pair.mine.state_dict(), mine)
    mine.seek(0)
    pair.theirs.load_state_dict(torch.load(mine))
    return same(*pair.run()) or same_state(pair)


def _printed(pair: Pair) -> str:
    """repr, and the settings a program may read from the layer."""
    mine, theirs = repr(pair.mine), repr(pair.theirs)
    if mine != theirs and " at 0x" not in theirs:
        return f"prints {mine!r} instead of {theirs!r}"
    for name, value in vars(pair.theirs).items():
        if name.startswith("_") or callable(value) or is_tensor(value):
            continue
        if not hasattr(pair.mine, name):
            return f"no attribute {name!r} ({value!r})"
        if isinstance(value, bool | int | float | str | tuple | list | None):
            own = getattr(pair.mine, name)
            if own != value and not (own != own and value != value):
                return f"attribute {name} is {own!r} instead of {value!r}"
    return ""


def check_to(pair: Pair) -> str:
    """`to(dtype)`: what becomes of parameters and buffers, and a call in that dtype."""
    import torch

    pair.run()
    for name in ("float32", "float16", "bfloat16", "float64"):
        twin = copy.deepcopy(pair.mine).to(getattr(pair.ad, name))
        other = copy.deepcopy(pair.theirs).to(getattr(torch, name))
        for (n, a), (_, b) in zip(twin.state_dict().items(), other.state_dict().items(),
                                  strict=True):
            if str(a.dtype).split(".")[-1] != str(b.dtype).split(".")[-1]:
                return f"to({name}): {n} is {a.dtype} instead of {b.dtype}"
        if reason := _call_in(pair, twin, other, name):
            return f"to({name}): {reason}"
    return ""


def _call_in(pair: Pair, twin: Any, other: Any, name: str) -> str:
    import torch

    def cast(library: Any, value: Any) -> Any:
        if is_tensor(value) and value.is_floating_point():
            return value.detach().to(getattr(library, name))
        if isinstance(value, tuple | list):
            return type(value)(cast(library, v) for v in value)
        return value

    (args, kwargs), (mine, own) = pair.given, pair.args
    try:
        seeded(pair.ad)
        want = list(flat(other(*cast(torch, args), **{
            k: cast(torch, v) for k, v in kwargs.items()})))
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        return ""
    seeded(pair.ad)
    got = list(flat(twin(*cast(pair.ad, mine), **{k: cast(pair.ad, v) for k, v in own.items()})))
    limit = {"float16": 1e-2, "bfloat16": 6e-2}.get(name, TOLERANCE.get(name, 0.0))
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if not is_tensor(w):
            continue
        if str(g.dtype).split(".")[-1] != str(w.dtype).split(".")[-1]:
            return f"result {k} is {g.dtype} instead of {w.dtype}"
        a, b = array(g.double()), array(w.double())
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        if not np.allclose(a, b, rtol=limit, atol=limit * scale, equal_nan=True):
            return f"result {k}: {np.abs(a - b).max():.3g} off, of {scale:.3g}"
    return ""


MODES: dict[str, Callable[[Pair], str]] = {
    "call": check_call, "second": check_second_order, "strided": check_strided,
    "channels_last": check_channels_last, "copies": check_copies, "to": check_to,
}


def check_error(info: Any, case: Any, ad: Any) -> str:
    """Why a bad constructor or call is not refused as PyTorch refuses it, or an empty string."""
    sample = case.module_error_input
    made, given = sample.constructor_input, sample.forward_input
    args, kwargs = argument((made.args, made.kwargs), ad, [])
    try:
        layer = getattr(ad.nn, info.module_cls.__name__)(*args, **kwargs)
        if given is not None and "FORWARD" in str(case.error_on):
            args, kwargs = argument((given.args, given.kwargs), ad, [])
            layer(*args, **kwargs)
    except case.error_type as error:
        if re.search(case.error_regex, str(error)):
            return ""
        return f"words: {str(error)[:160]!r} without {case.error_regex!r}"
    except Exception as error:
        return f"{type(error).__name__} instead of {case.error_type.__name__}: {error}"[:200]
    return f"accepted; PyTorch raises {case.error_type.__name__}: {case.error_regex}"[:200]


def described(sample: Any) -> str:
    def short(value: Any) -> str:
        if is_tensor(value):
            return f"{str(value.dtype).split('.')[-1]}{list(value.shape)}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(short(v) for v in value) + "]"
        return type(value).__name__ if isinstance(value, FunctionType) else repr(value)[:60]

    parts = []
    for part in (sample.constructor_input, sample.forward_input):
        if part is not None:
            words = [short(v) for v in part.args]
            words += [f"{k}={short(v)}" for k, v in part.kwargs.items()]
            parts.append("(" + ", ".join(words) + ")")
    return "".join(parts)[:200]


def cases_of(info: Any, dtype: str, training: bool, errors: bool) -> list[Any]:
    """The samples, or the bad calls, of PyTorch's table."""
    import torch

    torch.manual_seed(0)
    make = info.module_error_inputs_func if errors else info.module_inputs_func
    kind = getattr(torch, dtype)
    if make is None or kind not in info.dtypes:
        return []
    return list(make(info, device="cpu", dtype=kind, requires_grad=True, training=training))


def check(info: Any, ad: Any, dtype: str = "float64", mode: str = "call",
          limit: int = 10**6) -> list[Verdict]:
    """One layer on up to `limit` of its samples, in training and in evaluation."""
    found: list[Verdict] = []
    name = info.name.removeprefix("nn.")
    for training in (True, False):
        done, reasons = 0, []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for case in cases_of(info, dtype, training, mode == "errors")[:limit]:
                sample = case.module_error_input if mode == "errors" else case
                try:
                    reason = (check_error(info, case, ad) if mode == "errors" else
                              MODES[mode](Pair(info, case, ad, training)))
                except Unsupported:
                    continue
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:240]
                if reason:
                    reasons.append(f"{reason} <- {described(sample)}")
                done += not reason
        label = f"{name} {'train' if training else 'eval'}"
        state = "differ" if reasons else "pass"
        text = f"{len(reasons)} samples; {reasons[0]}" if reasons else ""
        found.append(Verdict(label, state, done, text))
    return found


def main(argv: list[str] | None = None) -> int:
    """Print the table; the exit code is 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="layers; all when none is given")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--samples", type=int, default=10**6, help="at most so many per layer")
    parser.add_argument("--mode", choices=[*MODES, "errors"], default="call")
    parser.add_argument("--all", action="store_true", help="print the layers that pass, too")
    options = parser.parse_args(argv)
    import adjoint as ad

    count: Counter[str] = Counter()
    samples = 0
    for info in module_table():
        if options.names and info.name.removeprefix("nn.") not in options.names:
            continue
        for verdict in check(info, ad, options.dtype, options.mode, options.samples):
            count[verdict.state] += 1
            samples += verdict.samples
            if options.all or verdict.state == "differ":
                print(f"{verdict.state:7} {verdict.name:32} {verdict.samples:4} {verdict.reason}",
                      flush=True)
    print(f"{options.mode} {options.dtype}: {count['pass']} pass ({samples} samples),"
          f" {count['differ']} differ")
    return int(bool(count["differ"]))


if __name__ == "__main__":
    sys.exit(main())
