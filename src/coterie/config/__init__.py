"""What configurations are read with: tables from signatures, names of choices, error lines."""
