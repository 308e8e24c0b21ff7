"""The functions of lower layers that nn uses, gathered in one place."""
from __future__ import annotations
