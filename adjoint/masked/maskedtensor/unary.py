"""Names of functions of one operand that masked tensors have."""
from adjoint.ops.public import FUNCTIONS as _F
from adjoint.ops.public import METHODS as _M

UNARY_NAMES = """abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan
atanh arctanh bitwise_not ceil clamp clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp
exp2 expm1 fix floor frac lgamma log log10 log1p log2 logit i0 isnan nan_to_num neg negative
positive pow rad2deg reciprocal round rsqrt sigmoid sign sgn signbit sin sinc sinh sqrt square tan
tanh trunc""".split()
INPLACE_UNARY_NAMES = [n + "_" for n in UNARY_NAMES
                       if n not in ("angle", "isnan", "positive", "signbit")]
NATIVE_UNARY_FNS = [_F[n] for n in UNARY_NAMES]
NATIVE_INPLACE_UNARY_FNS = [_M[n] for n in INPLACE_UNARY_NAMES]
__all__ = ["INPLACE_UNARY_NAMES", "NATIVE_INPLACE_UNARY_FNS", "NATIVE_UNARY_FNS", "UNARY_NAMES"]
