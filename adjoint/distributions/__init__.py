"""Probability distributions with the names and semantics of `torch.distributions`.

    >>> import adjoint as ad
    >>> from adjoint.distributions import Categorical, Normal, kl_divergence
    >>> p = Normal(ad.tensor([0.0, 1.0]), 1.0)
    >>> p.log_prob(ad.zeros(2))
    tensor([-0.9189, -1.4189])
"""
from __future__ import annotations

from adjoint.distributions import constraints as constraints
from adjoint.distributions import kl_cross as kl_cross
from adjoint.distributions import transforms as transforms
from adjoint.distributions.bernoulli import Bernoulli as Bernoulli
from adjoint.distributions.beta import Beta as Beta
from adjoint.distributions.binomial import Binomial as Binomial
from adjoint.distributions.categorical import Categorical as Categorical
from adjoint.distributions.cauchy import Cauchy as Cauchy
from adjoint.distributions.chi2 import Chi2 as Chi2
from adjoint.distributions.constraint_registry import biject_to as biject_to
from adjoint.distributions.constraint_registry import transform_to as transform_to
from adjoint.distributions.continuous_bernoulli import ContinuousBernoulli as ContinuousBernoulli
from adjoint.distributions.dirichlet import Dirichlet as Dirichlet
from adjoint.distributions.distribution import Distribution as Distribution
from adjoint.distributions.distribution import ExponentialFamily as ExponentialFamily
from adjoint.distributions.exponential import Exponential as Exponential
from adjoint.distributions.fishersnedecor import FisherSnedecor as FisherSnedecor
from adjoint.distributions.gamma import Gamma as Gamma
from adjoint.distributions.generalized_pareto import GeneralizedPareto as GeneralizedPareto
from adjoint.distributions.geometric import Geometric as Geometric
from adjoint.distributions.gumbel import Gumbel as Gumbel
from adjoint.distributions.half_cauchy import HalfCauchy as HalfCauchy
from adjoint.distributions.half_normal import HalfNormal as HalfNormal
from adjoint.distributions.independent import Independent as Independent
from adjoint.distributions.inverse_gamma import InverseGamma as InverseGamma
from adjoint.distributions.kl import kl_divergence as kl_divergence
from adjoint.distributions.kl import register_kl as register_kl
from adjoint.distributions.kumaraswamy import Kumaraswamy as Kumaraswamy
from adjoint.distributions.laplace import Laplace as Laplace
from adjoint.distributions.lkj_cholesky import LKJCholesky as LKJCholesky
from adjoint.distributions.log_normal import LogNormal as LogNormal
from adjoint.distributions.logistic_normal import LogisticNormal as LogisticNormal
from adjoint.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal as LowRankMultivariateNormal,
)
from adjoint.distributions.mixture_same_family import MixtureSameFamily as MixtureSameFamily
from adjoint.distributions.multinomial import Multinomial as Multinomial
from adjoint.distributions.multivariate_normal import MultivariateNormal as MultivariateNormal
from adjoint.distributions.negative_binomial import NegativeBinomial as NegativeBinomial
from adjoint.distributions.normal import Normal as Normal
from adjoint.distributions.one_hot_categorical import OneHotCategorical as OneHotCategorical
from adjoint.distributions.one_hot_categorical import (
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from adjoint.distributions.pareto import Pareto as Pareto
from adjoint.distributions.poisson import Poisson as Poisson
from adjoint.distributions.relaxed_bernoulli import RelaxedBernoulli as RelaxedBernoulli
from adjoint.distributions.relaxed_categorical import (
    RelaxedOneHotCategorical as RelaxedOneHotCategorical,
)
from adjoint.distributions.studentT import StudentT as StudentT
from adjoint.distributions.transformed_distribution import (
    TransformedDistribution as TransformedDistribution,
)
from adjoint.distributions.transforms import AbsTransform as AbsTransform
from adjoint.distributions.transforms import AffineTransform as AffineTransform
from adjoint.distributions.transforms import CatTransform as CatTransform
from adjoint.distributions.transforms import ComposeTransform as ComposeTransform
from adjoint.distributions.transforms import CorrCholeskyTransform as CorrCholeskyTransform
from adjoint.distributions.transforms import (
    CumulativeDistributionTransform as CumulativeDistributionTransform,
)
from adjoint.distributions.transforms import ExpTransform as ExpTransform
from adjoint.distributions.transforms import IndependentTransform as IndependentTransform
from adjoint.distributions.transforms import LowerCholeskyTransform as LowerCholeskyTransform
from adjoint.distributions.transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from adjoint.distributions.transforms import PowerTransform as PowerTransform
from adjoint.distributions.transforms import ReshapeTransform as ReshapeTransform
from adjoint.distributions.transforms import SigmoidTransform as SigmoidTransform
from adjoint.distributions.transforms import SoftmaxTransform as SoftmaxTransform
from adjoint.distributions.transforms import SoftplusTransform as SoftplusTransform
from adjoint.distributions.transforms import StackTransform as StackTransform
from adjoint.distributions.transforms import StickBreakingTransform as StickBreakingTransform
from adjoint.distributions.transforms import TanhTransform as TanhTransform
from adjoint.distributions.transforms import Transform as Transform
from adjoint.distributions.transforms import identity_transform as identity_transform
from adjoint.distributions.uniform import Uniform as Uniform
from adjoint.distributions.von_mises import VonMises as VonMises
from adjoint.distributions.weibull import Weibull as Weibull
from adjoint.distributions.wishart import Wishart as Wishart

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform",
    "Categorical", "Cauchy", "Chi2", "ComposeTransform", "ContinuousBernoulli",
    "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet", "Distribution",
    "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma",
    "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "IndependentTransform", "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace",
    "LogNormal",
    "LogisticNormal", "LowRankMultivariateNormal", "LowerCholeskyTransform",
    "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
    "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson",
    "PositiveDefiniteTransform", "PowerTransform", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT",
    "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "VonMises",
    "Weibull", "Wishart", "biject_to", "constraints", "identity_transform", "kl_divergence",
    "register_kl", "transform_to", "transforms",
]
