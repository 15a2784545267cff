"""One worker process per core: the default engine on a CPU."""

from coterie.engines.pool.engine import PoolEngine

__all__ = ["PoolEngine"]
