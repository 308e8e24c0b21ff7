"""Names of reductions that masked tensors have."""
REDUCE_NAMES = "sum mean amin amax argmin argmax prod all norm var std".split()
__all__ = ["REDUCE_NAMES"]
