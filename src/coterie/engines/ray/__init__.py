"""Clients trained by actors over a Ray cluster. Nothing outside this package imports Ray."""

from coterie.engines.ray.actor import ActorOptions
from coterie.engines.ray.cluster import Cluster, connect
from coterie.engines.ray.engine import RayEngine
from coterie.engines.ray.members import Member

__all__ = ["ActorOptions", "Cluster", "Member", "RayEngine", "connect"]
