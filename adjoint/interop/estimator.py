"""A module as an estimator in scikit-learn's manner: fit, predict, score, get_params, set_params.

scikit-learn need not be installed; where it is, `clone`, pipelines, cross-validation and grid
search take it as one of theirs.
"""
from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from adjoint import nn, optim
from adjoint.autograd.modes import no_grad
from adjoint.base.errors import AdjointError, ArgumentError, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.generator import default_generator


class NotFitted(AdjointError, ValueError, AttributeError):
    """predict or score was called before fit."""


class Estimator:
    """Trains `module(n_features, n_outputs)` (a function that makes a Module) on arrays.

    task        "classification" (integer or string labels, cross entropy) or "regression" (mean
                squared error); "auto" decides by the dtype of y
    loss        loss(output, target) in its place
    optimizer   a name in `adjoint.optim`, or optimizer(parameters, lr=...)
    epochs, batch_size, lr, weight_decay, shuffle, seed    as they say; `seed` fixes the start and
                the order, None draws on

    After `fit`: module_, losses_ (mean per epoch), n_features_in_, classes_ (classification).

    >>> import numpy as np, adjoint as ad
    >>> x = np.linspace(-1, 1, 64).reshape(-1, 1)
    >>> e = Estimator(lambda n, m: ad.nn.Linear(n, m), epochs=60, lr=0.1)
    >>> e.fit(x, 2 * x[:, 0] + 1).score(x, 2 * x[:, 0] + 1) > 0.999
    True
    """

    def __init__(self, module: Callable[[int, int], Any], *, task: str = "auto",
                 loss: Callable[..., Any] | None = None, optimizer: Any = "Adam",
                 epochs: int = 20, batch_size: int = 32, lr: float = 1e-2,
                 weight_decay: float = 0.0, shuffle: bool = True, seed: int | None = 0) -> None:
        self.module, self.task, self.loss, self.optimizer = module, task, loss, optimizer
        self.epochs, self.batch_size, self.lr = epochs, batch_size, lr
        self.weight_decay, self.shuffle, self.seed = weight_decay, shuffle, seed

    # -- parameters ---------------------------------------------------------------------------
    @classmethod
    def _names(cls) -> list[str]:
        return sorted(n for n in inspect.signature(cls.__init__).parameters if n != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor; returns the estimator."""
        for name in params:
            if name not in self._names():
                raise ArgumentError(f"Invalid parameter {name!r} for estimator {self!r}. Valid "
                                    f"parameters are: {self._names()!r}.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        default = {n: p.default for n, p in inspect.signature(type(self).__init__)
                   .parameters.items()}
        changed = [f"{n}={v!r}" for n, v in self.get_params().items() if v is not default[n]]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def _estimator_type(self) -> str:
        return "classifier" if self._classifies() else "regressor"

    def __sklearn_tags__(self) -> Any:
        tags: Any = importlib.import_module("sklearn.utils")    # only scikit-learn asks for them
        classifies = self._classifies()
        return tags.Tags(
            estimator_type=self._estimator_type, target_tags=tags.TargetTags(required=True),
            classifier_tags=tags.ClassifierTags() if classifies else None,
            regressor_tags=None if classifies else tags.RegressorTags())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def _classifies(self) -> bool:
        return hasattr(self, "classes_") or self.task == "classification"

    # -- fitting ------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any) -> Self:
        """Train a fresh module on X (n, ...) and y (n,) or (n, k); returns the estimator."""
        x, targets = self._features(X), _array(y)
        if len(x) != len(targets):
            raise ShapeError(f"fit: X has {len(x)} rows and y has {len(targets)}")
        if not len(x):
            raise ShapeError("fit: X has no rows")
        if self.task not in ("auto", "classification", "regression"):
            raise ArgumentError("task must be 'auto', 'classification' or 'regression', got "
                                f"{self.task!r}")
        self.__dict__.pop("classes_", None)
        classify = self.task == "classification" or (self.task == "auto"
                                                     and targets.dtype.kind not in "fc")
        self._flat = targets.ndim == 1
        if classify:
            self.classes_, codes = np.unique(targets, return_inverse=True)
            goal, outputs = wrap(codes.astype(np.int64).reshape(-1)), len(self.classes_)
        else:
            table = targets.astype(np.float32).reshape(len(targets), -1)
            goal, outputs = wrap(table), table.shape[1]
        self.n_features_in_ = int(x.shape[1]) if x.ndim > 1 else 1
        rng = np.random.default_rng(self.seed)
        held = default_generator.get_state()
        try:
            if self.seed is not None:
                default_generator.manual_seed(self.seed)
            self.module_ = self.module(self.n_features_in_, outputs)
            self._train(wrap(x), goal, classify, rng)
        finally:
            if self.seed is not None:
                default_generator.set_state(held)
        return self

    def _train(self, x: Tensor, goal: Tensor, classify: bool, rng: np.random.Generator) -> None:
        default = nn.functional.cross_entropy if classify else nn.functional.mse_loss
        loss = self.loss or default
        make = getattr(optim, self.optimizer) if isinstance(self.optimizer, str) else self.optimizer
        settings = {"weight_decay": self.weight_decay} if self.weight_decay else {}
        opt = make(self.module_.parameters(), lr=self.lr, **settings)
        n, self.losses_ = len(x), []
        self.module_.train()
        for _ in range(self.epochs):
            order = rng.permutation(n) if self.shuffle else np.arange(n)
            total = 0.0
            for start in range(0, n, self.batch_size):
                at = wrap(order[start:start + self.batch_size])
                opt.zero_grad()
                value = loss(self.module_(x[at]), goal[at])
                value.backward()
                opt.step()
                total += value.item() * len(at)
            self.losses_.append(total / n)
        self.module_.eval()

    # -- using --------------------------------------------------------------------------------
    def _features(self, X: Any) -> Any:
        x = _array(X)
        return x.astype(np.float32) if x.dtype.kind in "fiub" else x

    def _outputs(self, X: Any) -> Any:
        if not hasattr(self, "module_"):
            raise NotFitted(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' "
                            "with appropriate arguments before using this estimator.")
        x = self._features(X)
        have = x.shape[1] if x.ndim > 1 else 1
        if have != self.n_features_in_:
            raise ShapeError(f"X has {have} features, but {type(self).__name__} is expecting "
                             f"{self.n_features_in_} features as input")
        with no_grad():
            parts = [self.module_(wrap(x[i:i + 1024])).numpy() for i in range(0, len(x), 1024)]
        return np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)

    def predict(self, X: Any) -> Any:
        """Labels, or values, as a NumPy array."""
        out = self._outputs(X)
        if hasattr(self, "classes_"):
            return self.classes_[out.argmax(1)]
        return out.reshape(-1) if self._flat else out

    def predict_proba(self, X: Any) -> Any:
        """Softmax of the outputs, one column per class of `classes_`."""
        if not hasattr(self, "classes_"):
            raise NotFitted("predict_proba: this estimator is not a fitted classifier")
        return wrap(self._outputs(X)).softmax(1).numpy()

    def score(self, X: Any, y: Any) -> float:
        """Accuracy of a classifier; R² of a regression (1 - residual/total sum of squares)."""
        found, targets = self.predict(X), _array(y)
        if hasattr(self, "classes_"):
            return float((found == targets).mean())
        rest = ((targets.astype(np.float64) - found) ** 2).sum(0)
        total = ((targets - targets.mean(0)) ** 2).sum(0)
        return float(np.mean(1 - rest / np.where(total == 0, 1, total)))


def _array(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x)


__all__ = ["Estimator", "NotFitted"]
