"""`torch._functorch`: a package of modules that all show `functional`, which is `functorch`."""
