"""What is needed to reproduce the papers' tables, faults of reference code included."""
