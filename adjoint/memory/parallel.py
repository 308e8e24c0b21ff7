"""Splitting a training step over devices: what each rank holds.

Published formulas for one transformer layer (Korthikanti et al., "Reducing Activation
Recomputation in Large Transformer Models", arXiv 2205.05198, table 2), and the division of
weights, gradients and optimizer state by ZeRO (Rajbhandari et al., arXiv 1910.02054).
"""

from __future__ import annotations

from dataclasses import dataclass

from adjoint.base.errors import ArgumentError

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class Parallel:
    """Degrees of parallelism.

    `sequence`: what tensor parallelism leaves whole is split along the sequence. `zero`: stage 1
    splits optimizer state over `data` ranks, 2 also gradients, 3 also weights. `microbatches` in
    flight matter with `pipeline` > 1 (1F1B schedule).
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sequence: bool = False
    zero: int = 0
    microbatches: int = 1

    def __post_init__(self) -> None:
        degrees = {"data": self.data, "tensor": self.tensor, "pipeline": self.pipeline,
                   "microbatches": self.microbatches}
        for name, degree in degrees.items():
            if degree < 1:
                raise ArgumentError(f"Parallel: {name}={degree}; it has to be at least 1")
        if self.zero not in (0, 1, 2, 3):
            raise ArgumentError(f"Parallel: zero={self.zero}; the stages are 0, 1, 2 and 3")
        if self.sequence and self.tensor == 1:
            raise ArgumentError(
                "Parallel: sequence=True splits along the tensor-parallel ranks; set tensor > 1"
            )

    @property
    def ranks(self) -> int:
        """Number of devices."""
        return self.data * self.tensor * self.pipeline

    @property
    def in_flight(self) -> int:
        """Micro-batches whose activations the first pipeline stage holds at once (1F1B)."""
        return min(self.pipeline, self.microbatches)

    def check(self, layers: int, heads: int, kv_heads: int, seq: int) -> None:
        """Raise `ArgumentError` when a model cannot be divided this way."""
        if layers % self.pipeline:
            raise ArgumentError(
                f"Parallel: {layers} layers do not divide into pipeline={self.pipeline} stages"
            )
        if heads % self.tensor or (kv_heads % self.tensor and self.tensor % kv_heads):
            raise ArgumentError(
                f"Parallel: {heads} heads with {kv_heads} key/value heads do not divide over "
                f"tensor={self.tensor} ranks"
            )
        if self.sequence and seq % self.tensor:
            raise ArgumentError(
                f"Parallel: a sequence of {seq} does not divide over tensor={self.tensor} ranks"
            )


def layer_bytes(
    s: int, b: int, h: int, a: int, t: int = 1, *, sequence: bool = False,
    recompute: str = "none", dense: bool = True,
) -> float:
    """Korthikanti's bytes of activations per layer, for a GPT block in 16 bit.

    The constants are already bytes: 34 is 11 for attention, 19 for the MLP and 4 for the norms,
    dropout masks at one byte included. `dense=False` leaves out the 5as/h of dense attention,
    which tiled attention does not keep.

    >>> layer_bytes(2048, 1, 12288, 96) / (2048 * 12288)
    114.0
    >>> layer_bytes(2048, 1, 12288, 96, 8, sequence=True, recompute="selective") * 8
    855638016.0
    """
    if recompute not in RECOMPUTE:
        raise ArgumentError(
            f"layer_bytes: recompute={recompute!r}; the modes are {', '.join(RECOMPUTE)}"
        )
    sbh = s * b * h
    if recompute == "full":
        return 2.0 * sbh
    whole, split = (0.0, 34.0) if sequence or t == 1 else (10.0, 24.0)
    scores = 5 * a * s / h if dense and recompute == "none" else 0.0
    return sbh * (whole + (split + scores) / t)


def recompute_flops(s: int, h: int, recompute: str = "selective", of: str = "step") -> float:
    """Extra floating-point work of recomputation, relative to a step or to its forward pass.

    A layer's forward is 24 s h^2 + 4 s^2 h operations for each sequence, of which the attention
    core is 4 s^2 h; backward is twice that (Korthikanti et al., appendix A). The published 2.7%
    (GPT-3) and 1.6% (MT-NLG) are shares of a forward pass; of a whole step it is a third.

    >>> [round(recompute_flops(2048, h, of="forward"), 4) for h in (12288, 20480)]
    [0.027, 0.0164]
    >>> round(recompute_flops(2048, 12288), 4), round(recompute_flops(2048, 12288, "full"), 4)
    (0.009, 0.3333)
    """
    if recompute not in RECOMPUTE or of not in ("step", "forward"):
        raise ArgumentError(
            f"recompute_flops: recompute={recompute!r}, of={of!r}; they are one of "
            f"{', '.join(RECOMPUTE)} and one of step, forward"
        )
    share = {"none": 0.0, "selective": 4 * s * s * h / (24 * s * h * h + 4 * s * s * h), "full": 1}
    return share[recompute] / (3 if of == "step" else 1)


@dataclass(frozen=True)
class States:
    """Bytes per rank of weights, gradients, optimizer moments and 32-bit master weights."""

    weights: float
    gradients: float
    optimizer: float
    master: float

    @property
    def total(self) -> float:
        """Their sum."""
        return self.weights + self.gradients + self.optimizer + self.master


def states(
    parameters: float, parallel: Parallel, *, weight: float, gradient: float, moments: float,
    master: float,
) -> States:
    """Model state of one rank that owns `parameters`, given bytes per parameter of each kind.

    >>> states(70.55e9, Parallel(), weight=2, gradient=2, moments=8, master=4).total / 1e9
    1128.8
    >>> states(8e9, Parallel(data=8, zero=3), weight=2, gradient=2, moments=8, master=4).total
    16000000000.0
    """
    n, z = parallel.data, parallel.zero
    return States(
        parameters * weight / (n if z >= 3 else 1),
        parameters * gradient / (n if z >= 2 else 1),
        parameters * moments / (n if z >= 1 else 1),
        parameters * master / (n if z >= 1 else 1),
    )
