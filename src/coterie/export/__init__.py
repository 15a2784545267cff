"""A run's models to take away: weights, a loader that needs no Coterie, the group of each client,
and a model card."""

from __future__ import annotations

from coterie.export.folder import export_run

__all__ = ["export_run"]
