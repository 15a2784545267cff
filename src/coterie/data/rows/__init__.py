"""Rows of tables: what a file says, the kind of each column, and its values by this kind.

It needs NumPy and pandas alone, and pyarrow for parquet, so that `coterie export` can write a copy
of these files with the models: an export reads rows as Coterie does. Therefore they import each
other relatively.

Each column has a kind. `kinds.decide_kinds` finds it in the training files, once; later files are
read by it, whatever their values look like. Identifiers and categories are text from the first byte
on.
"""
