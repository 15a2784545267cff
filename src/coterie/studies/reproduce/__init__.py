"""The tables of papers run again, the faults of reference code included."""

# In the order of the page. They stand in this file because the command line completes them, and
# its other modules import torch, which takes seconds.
PAPERS = ("fedgroup", "flexcfl", "fedclust", "fedgsp", "rfedavg")
