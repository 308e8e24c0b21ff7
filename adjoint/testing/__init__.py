"""Checks that hold for every operation and every program, for this package's tests and for users."""
