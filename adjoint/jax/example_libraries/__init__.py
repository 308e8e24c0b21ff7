"""Optimisers and layers written in this API."""
