"""The app beside the SuperLink: the rounds of a simulation, with real clients."""
