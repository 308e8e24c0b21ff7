"""Named architectures: their parameters and what one training step of them keeps.

Everything is an expression in the symbols of `Architecture.symbols` plus the run's s (tokens per
sequence), b (sequences) and e (bytes per element), so that the same rows are evaluated here, on
the command line, and in the browser page:

    L layers    h width    a heads    k key/value heads    d head width    f inner width
    V vocabulary    C positions    s sequence    b batch    e bytes per element

A row of the walk is one value that forward keeps for backward, named after the operation whose
rule reads it, once, however many operations read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from adjoint.base.errors import ArgumentError


@dataclass(frozen=True)
class Part:
    """A group of parameters: an expression for their number, and whether it is per layer.

    `split`: tensor parallelism divides it.
    """

    name: str
    count: str
    per_layer: bool = False
    split: bool = False


@dataclass(frozen=True)
class Saved:
    """One kept value: elements and bytes per element as expressions.

    `group` sorts it for comparison (norm, attention, scores, mlp, statistics, output);
    `split`: tensor parallelism divides it. `selective`: recomputed in selective mode. `lean`: kept
    even when outputs of norms and activations are recomputed in backward.
    """

    op: str
    value: str
    elements: str
    width: str = "e"
    group: str = "attention"
    split: bool = False
    selective: bool = False
    lean: bool = True


@dataclass(frozen=True)
class Architecture:
    """A model: its symbols, its parameters and the walk of one block and of the rest.

    `published` is the parameter count that its authors or the reference implementation give;
    `seq` the sequence length used when none is asked for.
    """

    name: str
    kind: str
    symbols: dict[str, int]
    parts: tuple[Part, ...]
    block: tuple[Saved, ...]
    rest: tuple[Saved, ...]
    seq: int
    published: int
    flash: bool = True
    title: str = ""
    dropout: bool = False


# ---------------------------------------------------------------------------------------------
# Parameters


def _transformer_parts(
    *, bias: bool, glu: bool, rms: bool, tied: bool, learned_positions: bool
) -> tuple[Part, ...]:
    norm = "h" if rms else "2*h"
    qkv = "h*(a+2*k)*d" + (" + (a+2*k)*d" if bias else "")
    up = "2*h*f" if glu else "h*f" + (" + f" if bias else "")
    parts = [
        Part("token embedding", "V*h", split=True),
        Part("attention q, k, v", qkv, True, True),
        Part("attention output", "a*d*h" + (" + h" if bias else ""), True, True),
        Part("mlp in" + (" (gate and up)" if glu else ""), up, True, True),
        Part("mlp out", "f*h" + (" + h" if bias else ""), True, True),
        Part("norms", f"2*({norm})", True),
        Part("final norm", norm),
    ]
    if learned_positions:
        parts.insert(1, Part("position embedding", "C*h"))
    if not tied:
        parts.append(Part("output projection", "V*h", split=True))
    return tuple(parts)


# ---------------------------------------------------------------------------------------------
# Kept values


def _attention(flash: bool, dropout: bool) -> list[Saved]:
    """Kept values of the attention itself; dense keeps the s x s probabilities."""
    rows = [
        Saved("attention", "q", "s*b*a*d", split=True),
        Saved("attention", "k", "s*b*k*d", split=True),
        Saved("attention", "v", "s*b*k*d", split=True),
    ]
    if flash:
        rows.append(
            Saved("attention", "log-sum-exp", "s*b*a", "4", "statistics", split=True)
        )
    else:
        rows.append(
            Saved("softmax", "probabilities", "a*s*s*b", "e", "scores", True, True)
        )
        if dropout:
            rows += [
                Saved("dropout", "mask", "a*s*s*b", "1/8", "scores", True, True),
                Saved("matmul", "dropped probabilities", "a*s*s*b", "e", "scores", True, True),
            ]
    rows.append(Saved("output linear", "attention result", "s*b*a*d", split=True))
    return rows


def _norm(name: str, rms: bool) -> list[Saved]:
    stats = "rstd" if rms else "mean and rstd"
    return [
        Saved(name, "input", "s*b*h", group="norm"),
        Saved(name, stats, "s*b" if rms else "2*s*b", "4", "statistics"),
    ]


def transformer_block(
    *, rms: bool = False, glu: bool = False, flash: bool = True, dropout: bool = False
) -> tuple[Saved, ...]:
    """Rows of one pre-norm block; post-norm keeps the same numbers of the same sizes.

    Dropout keeps a bit for each element (tiled attention none: it draws its mask again); of
    dense attention also the dropped copy of the probabilities, which the product with v reads.

    >>> sum(row.elements == "s*b*f" for row in transformer_block(glu=True))
    4
    """
    rows = [*_norm("norm 1", rms)]
    rows.append(Saved("q, k, v linear", "norm 1 result", "s*b*h", lean=False))
    rows += _attention(flash, dropout)
    if dropout:
        rows += [Saved(f"dropout {i}", "mask", "s*b*h", "1/8", "dropout") for i in (1, 2)]
    rows += _norm("norm 2", rms)
    rows.append(Saved("mlp in linear", "norm 2 result", "s*b*h", group="mlp", lean=False))
    if glu:
        rows += [
            Saved("silu", "gate", "s*b*f", group="mlp", split=True),
            Saved("mul", "silu(gate)", "s*b*f", group="mlp", split=True, lean=False),
            Saved("mul", "up", "s*b*f", group="mlp", split=True),
            Saved("mlp out linear", "silu(gate) * up", "s*b*f", group="mlp", split=True,
                  lean=False),
        ]
    else:
        rows += [
            Saved("gelu", "input", "s*b*f", group="mlp", split=True),
            Saved("mlp out linear", "gelu result", "s*b*f", group="mlp", split=True, lean=False),
        ]
    return tuple(rows)


def _head_rows(rms: bool) -> tuple[Saved, ...]:
    """What a language model keeps outside of its blocks; the loss works in 32 bit."""
    rows = [
        Saved("embedding", "token numbers", "s*b", "8", "output"),
        *_norm("final norm", rms),
        Saved("output projection", "final norm result", "s*b*h", group="output", lean=False),
        Saved("cross entropy", "log-probabilities", "s*b*V", "4", "output", split=True),
    ]
    return tuple(rows)


# ---------------------------------------------------------------------------------------------
# Language models


def _gpt(name: str, layers: int, h: int, a: int, published: int, **over: int) -> Architecture:
    symbols = dict(L=layers, h=h, a=a, k=a, d=h // a, f=4 * h, V=50257, C=1024) | over
    parts = _transformer_parts(bias=True, glu=False, rms=False, tied=True, learned_positions=True)
    return Architecture(
        name, "transformer", symbols, parts, transformer_block(dropout=True), _head_rows(False),
        symbols["C"], published, title="pre-norm, GELU 4h, dropout, biases, tied embedding",
        dropout=True,
    )


def _llama(
    name: str, layers: int, h: int, a: int, k: int, f: int, vocab: int, seq: int, published: int
) -> Architecture:
    symbols = dict(L=layers, h=h, a=a, k=k, d=h // a, f=f, V=vocab, C=0)
    parts = _transformer_parts(bias=False, glu=True, rms=True, tied=False, learned_positions=False)
    return Architecture(
        name, "transformer", symbols, parts, transformer_block(rms=True, glu=True),
        _head_rows(True), seq, published,
        title="pre-norm RMS, SwiGLU, rotary positions, no dropout, no biases"
        + (f", {k} key/value heads for {a}" if k != a else ""),
    )


def _bert(name: str, layers: int, h: int, a: int, published: int) -> Architecture:
    symbols = dict(L=layers, h=h, a=a, k=a, d=h // a, f=4 * h, V=30522, C=512)
    base = _transformer_parts(bias=True, glu=False, rms=False, tied=True, learned_positions=True)
    parts = [p for p in base if p.name != "final norm"]
    parts += [Part("token types", "2*h"), Part("embedding norm", "2*h"), Part("pooler", "h*h + h")]
    rest = (
        Saved("embedding", "token numbers", "s*b", "8", "output"),
        *_norm("embedding norm", False),
        Saved("pooler", "first token and result", "2*b*h", group="output"),
    )
    return Architecture(
        name, "transformer", symbols, tuple(parts), transformer_block(dropout=True), rest, 512,
        published, title="post-norm encoder, GELU 4h, dropout, with pooler", dropout=True,
    )


def _vit(
    name: str, layers: int, h: int, a: int, patch: int, published: int, image: int = 224
) -> Architecture:
    tokens = (image // patch) ** 2 + 1
    symbols = dict(L=layers, h=h, a=a, k=a, d=h // a, f=4 * h, V=1000, C=tokens, p=patch)
    base = _transformer_parts(bias=True, glu=False, rms=False, tied=True, learned_positions=True)
    parts = [p for p in base if p.name != "token embedding"]
    parts += [
        Part("patch projection", "3*p*p*h + h"),
        Part("class token", "h"),
        Part("classifier", "h*V + V"),
    ]
    rest = (
        Saved("patch projection", "pictures", "3*p*p*(s-1)*b", group="output"),
        *_norm("final norm", False),
        Saved("classifier", "class token", "b*h", group="output"),
        Saved("cross entropy", "log-probabilities", "b*V", "4", "output"),
    )
    return Architecture(
        name, "transformer", symbols, tuple(parts), transformer_block(), rest, tokens, published,
        title=f"{image}x{image} pictures in {patch}x{patch} patches, GELU 4h",
    )


# ---------------------------------------------------------------------------------------------
# Residual networks


class _ConvNet:
    """Counts parameters and kept values of convolutions, batch norms and ReLUs."""

    def __init__(self) -> None:
        self.parameters: dict[str, int] = {}
        self.rows: list[Saved] = []

    def count(self, part: str, n: int) -> None:
        self.parameters[part] = self.parameters.get(part, 0) + n

    def keep(self, op: str, value: str, elements: int, width: str = "e", group: str = "") -> None:
        self.rows.append(Saved(op, value, f"b*{elements}", width, group or op))

    def conv(self, where: str, c_in: int, c_out: int, k: int, side: int) -> None:
        """A convolution to `side` x `side` and its batch norm.

        The norm keeps the convolution's result and two statistics per channel; the convolution
        keeps its input, which is the value noted where it was made (a ReLU's or the pictures).
        """
        self.count("convolutions", c_in * c_out * k * k)
        self.count("batch norms", 2 * c_out)
        self.keep("batch norm", f"{where} convolution result", c_out * side * side)
        self.rows.append(
            Saved("batch norm", f"{where} mean and rstd", str(2 * c_out), "4", "statistics")
        )

    def relu(self, where: str, c: int, side: int) -> None:
        """The result is kept by the ReLU and read by the next convolution too: one value."""
        self.keep("relu", f"{where} result", c * side * side)


def _resnet(name: str, blocks: list[int], bottleneck: bool, published: int) -> Architecture:
    net = _ConvNet()
    net.keep("convolution", "pictures", 3 * 224 * 224)
    net.conv("stem", 3, 64, 7, 112)
    net.relu("stem", 64, 112)
    net.keep("max pool", "result", 64 * 56 * 56)
    net.rows.append(Saved("max pool", "positions", f"b*{64 * 56 * 56}", "8", "max pool"))
    c_in, side, expand = 64, 56, 4 if bottleneck else 1
    for stage, repeats in enumerate(blocks):
        width = 64 << stage
        for r in range(repeats):
            where = f"stage {stage + 1} block {r + 1}"
            before = side
            side = side // 2 if stage and r == 0 else side
            plan = [(width, 3, side), (width, 3, side)]
            if bottleneck:
                plan = [(width, 1, before), (width, 3, side), (4 * width, 1, side)]
            c = c_in
            for n, (c_out, k, out_side) in enumerate(plan):
                net.conv(f"{where}.{n + 1}", c, c_out, k, out_side)
                if n + 1 < len(plan):
                    net.relu(f"{where}.{n + 1}", c_out, out_side)
                c = c_out
            if c_in != width * expand:
                net.conv(f"{where} shortcut", c_in, width * expand, 1, side)
            c_in = width * expand
            net.relu(where, c_in, side)
    net.count("classifier", c_in * 1000 + 1000)
    net.keep("classifier", "pooled features", c_in)
    net.rows.append(Saved("cross entropy", "log-probabilities", "b*1000", "4", "output"))
    parts = tuple(Part(part, str(n)) for part, n in net.parameters.items())
    return Architecture(
        name, "resnet", {"L": 0, "V": 1000}, parts, (), tuple(net.rows), 1, published,
        title="224x224 pictures, 1000 classes; the ReLU writes over its input",
    )


_MAKERS: dict[str, Callable[[], Architecture]] = {
    "gpt2": lambda: _gpt("gpt2", 12, 768, 12, 124_439_808),
    "gpt2-medium": lambda: _gpt("gpt2-medium", 24, 1024, 16, 354_823_168),
    "gpt2-large": lambda: _gpt("gpt2-large", 36, 1280, 20, 774_030_080),
    "gpt2-xl": lambda: _gpt("gpt2-xl", 48, 1600, 25, 1_557_611_200),
    "gpt3-175b": lambda: _gpt("gpt3-175b", 96, 12288, 96, 174_600_000_000, C=2048),
    "mt-nlg-530b": lambda: _gpt(
        "mt-nlg-530b", 105, 20480, 128, 529_600_000_000, C=2048, V=51200
    ),
    "llama-2-7b": lambda: _llama(
        "llama-2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, 6_738_415_616
    ),
    "llama-2-13b": lambda: _llama(
        "llama-2-13b", 40, 5120, 40, 40, 13824, 32000, 4096, 13_015_864_320
    ),
    "llama-2-70b": lambda: _llama(
        "llama-2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, 68_976_648_192
    ),
    "llama-3.1-8b": lambda: _llama(
        "llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256, 8192, 8_030_261_248
    ),
    "llama-3.1-70b": lambda: _llama(
        "llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256, 8192, 70_553_706_496
    ),
    "llama-3.1-405b": lambda: _llama(
        "llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256, 8192, 405_853_388_800
    ),
    "bert-base": lambda: _bert("bert-base", 12, 768, 12, 109_482_240),
    "bert-large": lambda: _bert("bert-large", 24, 1024, 16, 335_141_888),
    "vit-s-16": lambda: _vit("vit-s-16", 12, 384, 6, 16, 22_050_664),
    "vit-b-16": lambda: _vit("vit-b-16", 12, 768, 12, 16, 86_567_656),
    "vit-b-32": lambda: _vit("vit-b-32", 12, 768, 12, 32, 88_224_232),
    "vit-l-16": lambda: _vit("vit-l-16", 24, 1024, 16, 16, 304_326_632),
    "vit-h-14": lambda: _vit("vit-h-14", 32, 1280, 16, 14, 632_045_800),
    "resnet-18": lambda: _resnet("resnet-18", [2, 2, 2, 2], False, 11_689_512),
    "resnet-34": lambda: _resnet("resnet-34", [3, 4, 6, 3], False, 21_797_672),
    "resnet-50": lambda: _resnet("resnet-50", [3, 4, 6, 3], True, 25_557_032),
    "resnet-101": lambda: _resnet("resnet-101", [3, 4, 23, 3], True, 44_549_160),
    "resnet-152": lambda: _resnet("resnet-152", [3, 8, 36, 3], True, 60_192_808),
}


def names() -> list[str]:
    """The known architectures.

    >>> "llama-3.1-70b" in names()
    True
    """
    return list(_MAKERS)


def _bare(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def architecture(name: str) -> Architecture:
    """Look up an architecture by name; case, dashes, underscores and dots do not matter.

    Raises `ArgumentError` listing the names.

    >>> architecture("GPT2").symbols["h"]
    768
    >>> architecture("resnet50").name
    'resnet-50'
    """
    key = _bare(name)
    key = {"gpt3": "gpt3-175b", "mtnlg": "mt-nlg-530b", "llama70b": "llama-3.1-70b",
           "llama7b": "llama-2-7b"}.get(key, {_bare(k): k for k in _MAKERS}.get(key, key))
    if key not in _MAKERS:
        raise ArgumentError(
            f"architecture: {name!r} is not known; the names are {', '.join(_MAKERS)}"
        )
    return _MAKERS[key]()


def custom(
    *, layers: int, width: int, heads: int, inner: int = 0, vocabulary: int = 0,
    kv_heads: int = 0, glu: bool = False, rms: bool = False, dropout: bool = False,
    seq: int = 1024,
) -> Architecture:
    """A transformer of your own sizes (`inner` defaults to four times the width).

    >>> custom(layers=12, width=768, heads=12).symbols["f"]
    3072
    """
    if layers < 1 or heads < 1 or width % heads:
        raise ArgumentError(
            f"custom: layers={layers}, width={width}, heads={heads}; layers and heads have to be "
            "at least 1 and the width a multiple of the heads"
        )
    symbols = dict(
        L=layers, h=width, a=heads, k=kv_heads or heads, d=width // heads, f=inner or 4 * width,
        V=vocabulary, C=0,
    )
    parts = _transformer_parts(bias=not rms, glu=glu, rms=rms, tied=True, learned_positions=False)
    return Architecture(
        "custom", "transformer", symbols, parts,
        transformer_block(rms=rms, glu=glu, dropout=dropout), _head_rows(rms), seq, 0,
        title="sizes given on the call", dropout=dropout,
    )


def dense(rows: Iterable[Saved], dropout: bool) -> tuple[Saved, ...]:
    """The rows of a block with dense attention in place of tiled attention."""
    out = []
    for row in rows:
        if row.value == "log-sum-exp":
            out += [r for r in _attention(False, dropout) if r.group == "scores"]
        else:
            out.append(row)
    return tuple(out)
