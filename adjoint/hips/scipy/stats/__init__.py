"""`autograd.scipy.stats`: densities and distribution functions."""
from adjoint.hips.scipy.stats import (
    beta,
    chi2,
    dirichlet,
    gamma,
    multivariate_normal,
    norm,
    poisson,
    t,
)

__all__ = ["beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"]
