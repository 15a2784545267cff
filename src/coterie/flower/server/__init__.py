"""The app next to the SuperLink: the rounds of a simulation, with real clients."""
