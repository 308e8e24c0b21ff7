"""`autograd.scipy`: special functions, distributions, linear algebra, convolution, ODEs."""
