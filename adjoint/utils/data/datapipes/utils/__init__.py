"""Helpers of pipes: which functions they take, files, decoders by extension."""
