"""Checks that hold for every operation and program, for our tests and for users'."""
from adjoint.testing.close import assert_allclose as assert_allclose
from adjoint.testing.close import assert_close as assert_close
from adjoint.testing.close import make_tensor as make_tensor
