"""Names of files that more than one layer knows, without what reads them."""

POPULATION = "population.npz"  # in the folder of a run, the data of a run from Python
