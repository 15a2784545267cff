"""Questions that take several runs: layers, advise, reproduce."""
