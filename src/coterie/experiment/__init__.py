"""An experiment: all that a run follows from, read from TOML or made in Python, and checked."""

from coterie.experiment.experiment import Experiment, check, load_config
from coterie.experiment.records import Checkpoints, Log, PersonalLayers, Training

__all__ = ["Checkpoints", "Experiment", "Log", "PersonalLayers", "Training", "check", "load_config"]
