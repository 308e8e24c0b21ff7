"""How raw arrays are computed: scalar expressions, their lowerings, and generated kernels."""
