"""Parameters for the tests of distributions."""

import numpy as np

R = np.random.default_rng(3)


def pos(*s):
    return R.uniform(0.4, 3.0, s)


def real(*s):
    return R.normal(size=s)


def unit(*s):
    return R.uniform(0.1, 0.9, s)


def simplex(*s):
    p = R.uniform(0.2, 1.0, s)
    return p / p.sum(-1, keepdims=True)


def spd(n):
    a = R.normal(size=(n, n))
    return a @ a.T + np.eye(n)


TRIL = np.linalg.cholesky(spd(3))
CORRELATED = np.stack([np.linalg.cholesky(c / np.sqrt(np.outer(np.diag(c), np.diag(c))))
                       for c in (spd(3) for _ in range(8))]).reshape(4, 2, 3, 3)
# name: (class, parameters, values where it is evaluated)


def numbers(t):
    return np.asarray(t.detach().numpy(), np.float64)
