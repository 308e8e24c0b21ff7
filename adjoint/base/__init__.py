"""L0: what every layer may use: errors, dtypes, shapes, trees, provenance."""
