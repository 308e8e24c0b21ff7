"""Programs that draw random numbers, written for both packages: `t` is `torch` or `adjoint`.

`EXACT` gives the same numbers to the last bit, `CLOSE` to rounding (a logarithm or a sine of
another library); after either, the generators stand at the same place.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

Program = Callable[[Any], Any]
SHAPES: list[tuple[int, ...]] = [(), (3,), (16,), (5, 7), (20, 31), (90, 41)]
FLOATS = ("float32", "float16", "bfloat16")
KINDS = ("int64", "int32", "int16", "int8", "uint8", "bool", "float64", *FLOATS)
FILLS = {"uniform_": (-1.0, 3.0), "normal_": (0.1, 0.2), "exponential_": (0.7,),
         "cauchy_": (1.0, 2.0), "log_normal_": (0.1, 0.5), "geometric_": (0.3,)}
LAYERS = {
    "Linear": (20, 30), "Conv2d": (3, 8, 3), "Embedding": (10, 7), "LSTM": (5, 7, 2), "GRU": (5, 7),
    "RNNCell": (5, 7), "Bilinear": (3, 4, 5), "ConvTranspose2d": (3, 4, 3), "EmbeddingBag": (10, 7),
    "MultiheadAttention": (8, 2), "TransformerEncoderLayer": (8, 2),
    "TransformerDecoderLayer": (8, 2)}
INITS = {"xavier_uniform_": (), "xavier_normal_": (), "kaiming_uniform_": (),
         "kaiming_normal_": (), "trunc_normal_": (), "sparse_": (0.3,)}


def _drawn(s: tuple[int, ...]) -> dict[str, Program]:
    return {
        "rand": lambda t: t.rand(s), "rand float64": lambda t: t.rand(s, dtype=t.float64),
        "randn": lambda t: t.randn(s), "randn complex": lambda t: t.randn(s, dtype=t.complex64),
        "randn float16": lambda t: t.randn(s, dtype=t.float16),
        "rand bfloat16": lambda t: t.rand(s, dtype=t.bfloat16),
        "randint": lambda t: t.randint(-3, 100, s),
        "randint of 64 bits": lambda t: t.randint(-2**40, 2**50, s),
        "randint of 28 bits": lambda t: t.randint(0, 2**28, s, dtype=t.int32),
        "random_ to": lambda t: t.empty(s).random_(200),
        "bernoulli": lambda t: t.bernoulli(t.full(s, 0.4)),
        "bernoulli float64": lambda t: t.bernoulli(t.full(s, 0.4, dtype=t.float64)),
        "bernoulli p": lambda t: t.bernoulli(t.empty(s), 0.4),
        "bernoulli_": lambda t: t.empty(s).bernoulli_(0.3),
        "dropout": lambda t: t.nn.functional.dropout(t.ones(s), 0.3),
        "rrelu": lambda t: t.nn.functional.rrelu(-t.ones(s), training=True),
        "normal of a mean": lambda t: t.normal(t.full(s, 2.0), 3.0),
        "normal of a std": lambda t: t.normal(2.0, t.full(s, 3.0)),
        "normal of numbers": lambda t: t.normal(2.0, 3.0, s),
        "poisson": lambda t: t.poisson(t.full(s, 3.0)),
        "poisson of many": lambda t: t.poisson(t.full(s, 30.0)),
        "binomial": lambda t: t.binomial(t.full(s, 30.0), t.full(s, 0.3)),
        "binomial of many": lambda t: t.binomial(t.full(s, 300.0), t.full(s, 0.7)),
        **{f"random_ {k}": lambda t, k=k: t.empty(s, dtype=getattr(t, k)).random_()
           for k in KINDS},
        **{m: lambda t, m=m, a=a: getattr(t.empty(s), m)(*a) for m, a in FILLS.items()}}


def _strided() -> dict[str, Program]:
    return {
        **{f"{m} transposed": lambda t, m=m, a=a: getattr(t.empty(20, 31).t(), m)(*a)
           for m, a in FILLS.items()},
        **{f"{m} with gaps": lambda t, m=m, a=a: getattr(t.zeros(20, 31)[:, 1:], m)(*a)
           for m, a in FILLS.items()},
        "dropout transposed": lambda t: t.nn.functional.dropout(t.ones(20, 31).t(), 0.3),
        "dropout permuted": lambda t: t.nn.functional.dropout(
            t.ones(20, 31, 4).permute(2, 0, 1), 0.3),
        "dropout with gaps": lambda t: t.nn.functional.dropout(t.ones(20, 31)[:, 3:], 0.3),
        "randn_like transposed": lambda t: t.randn_like(t.ones(20, 31).t()),
        "rand_like transposed": lambda t: t.rand_like(t.ones(20, 31).t())}


def _actions() -> dict[str, Program]:
    """One draw for each row, as programs choose actions."""
    def policy(t: Any) -> Any:
        return t.distributions.Categorical(logits=t.linspace(0, 1, 50).reshape(5, 2, 5))
    return {
        "Categorical": lambda t: policy(t).sample(),
        "Categorical once": lambda t: policy(t).sample((1, 1)),
        "Categorical of many": lambda t: policy(t).sample((3, 2)),
        "a mixture": lambda t: t.distributions.MixtureSameFamily(
            t.distributions.Categorical(t.arange(1.0, 6)),
            t.distributions.Uniform(t.arange(5.0), 5.0)).sample()}


def _others() -> dict[str, Program]:
    p = lambda t: t.linspace(0, 1, 50)                                            # noqa: E731
    ones = lambda t: t.ones(20, 30, 4)                                            # noqa: E731
    return {
        **{f"randperm {n}": lambda t, n=n: t.randperm(n) for n in (1, 2, 100, 70000)},
        "multinomial": lambda t: t.multinomial(p(t), 7), "argmax": lambda t: t.multinomial(p(t), 1),
        "multinomial again": lambda t: t.multinomial(p(t), 700, True),
        "multinomial of one with replacement": lambda t: t.multinomial(
            t.linspace(1, 2, 50).reshape(5, 10), 1, True),
        **_actions(),
        "multinomial rows": lambda t: t.multinomial(p(t).reshape(5, 10).double(), 70, True),
        **{f"dropout {q}": lambda t, q=q: t.nn.functional.dropout(t.linspace(1, 2, 50000), q)
           for q in (0.1, 0.2, 0.4, 0.7, 0.9)},
        "dropout1d": lambda t: t.nn.functional.dropout1d(ones(t), 0.3),
        "dropout2d": lambda t: t.nn.functional.dropout2d(ones(t).unsqueeze(-1), 0.3),
        "alpha_dropout": lambda t: t.nn.functional.alpha_dropout(p(t), 0.3, True),
        "feature_alpha_dropout": lambda t: t.nn.functional.feature_alpha_dropout(
            ones(t), 0.3, True),
        "randint_like": lambda t: t.randint_like(t.ones(20, 31), 3, 9)}


def _modules() -> dict[str, Program]:
    def weights(t: Any, name: str, args: Any) -> Any:
        made = getattr(t.nn, name)(*args)
        return t.cat([w.detach().reshape(-1) for w in made.parameters()])
    return {
        **{n: lambda t, n=n, a=a: weights(t, n, a) for n, a in LAYERS.items()},
        **{f"{n} {s}": lambda t, n=n, a=a, s=s: getattr(t.nn.init, n)(t.empty(s), *a)
           for n, a in INITS.items() for s in ((30, 20), (20, 30))},
        "a narrow trunc_normal_": lambda t: t.nn.init.trunc_normal_(t.empty(30, 20), 0.0, 1.0, 1.5,
                                                                    2.0)}


def _loaded(t: Any, **how: Any) -> Any:
    loader = t.utils.data.DataLoader(t.utils.data.TensorDataset(t.arange(37)), 4, **how)
    return t.cat([batch[0] for _ in range(2) for batch in loader])


def _sampled(t: Any, name: str, *args: Any, **how: Any) -> Any:
    sampler = getattr(t.utils.data, name)(*args, **how)
    return t.tensor([i for _ in range(2) for i in sampler])


def _data() -> dict[str, Program]:
    w = [0.1, 0.2, 0.5, 0.3]
    return {
        "DataLoader": lambda t: _loaded(t, shuffle=True), "in order": _loaded,
        "DataLoader of a generator": lambda t: _loaded(
            t, shuffle=True, generator=t.Generator().manual_seed(3)),
        "RandomSampler": lambda t: _sampled(t, "RandomSampler", range(40)),
        "RandomSampler again": lambda t: _sampled(t, "RandomSampler", range(40), True, 100),
        "RandomSampler of more": lambda t: _sampled(t, "RandomSampler", range(40), num_samples=100),
        "SubsetRandomSampler": lambda t: _sampled(t, "SubsetRandomSampler", list(range(5, 40))),
        "WeightedRandomSampler": lambda t: _sampled(t, "WeightedRandomSampler", w, 30),
        "WeightedRandomSampler once": lambda t: _sampled(t, "WeightedRandomSampler", w, 3, False),
        "random_split": lambda t: t.tensor(list(
            t.utils.data.random_split(range(30), [20, 10])[0].indices)),
        "DistributedSampler": lambda t: t.tensor(list(t.utils.data.distributed.DistributedSampler(
            range(37), 2, 1, seed=4)))}


def _net(t: Any) -> Any:
    return t.nn.LSTM(5, 7, 3, dropout=0.4)(t.ones(6, 2, 5))[0].detach()


def _attended(t: Any) -> Any:
    x = t.ones(6, 2, 8)
    return t.nn.MultiheadAttention(8, 2, dropout=0.2)(x, x, x)[0].detach()


def _dropped_scores(t: Any) -> Any:
    q, k, v = (t.randn(2, 3, n, 8) for n in (9, 7, 7))
    return t.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=t.rand(9, 7) > 0.2,
                                                        dropout_p=0.3)


def _layers(t: Any) -> Any:
    made = t.nn.TransformerEncoderLayer(8, 2, 16)(t.randn(6, 2, 8))
    return t.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)(made, t.randn(6, 5, 8)).detach()


EXACT: dict[str, Program] = {
    **{f"{n} {list(s)}": f for s in SHAPES for n, f in _drawn(s).items()},
    **_strided(), **_others(), **_modules(), **_data()}
CLOSE: dict[str, Program] = {
    "randn float64": lambda t: t.randn(70, 90, dtype=t.float64),
    "exponential_ float64": lambda t: t.empty(70, 90, dtype=t.float64).exponential_(),
    "orthogonal_": lambda t: t.nn.init.orthogonal_(t.empty(30, 20)),
    "orthogonal_ wide": lambda t: t.nn.init.orthogonal_(t.empty(20, 30)),
    "gumbel_softmax": lambda t: t.nn.functional.gumbel_softmax(t.linspace(0, 1, 50).reshape(5, 10)),
    "RelaxedOneHotCategorical": lambda t: t.distributions.RelaxedOneHotCategorical(
        t.tensor(0.7), logits=t.linspace(0, 1, 50).reshape(5, 10)).sample((3,)),
    "scaled_dot_product_attention": _dropped_scores,
    "transformer layers": _layers, "LSTM with dropout": _net, "attention with dropout": _attended}
