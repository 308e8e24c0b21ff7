"""Checks that hold for every operation and program, for our tests and for users'."""
