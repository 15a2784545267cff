"""Sizes of the pieces in which large matrices are made.

Up to ``MANY`` rows a matrix is made in one piece. Beyond, it is made in blocks, so that memory is
that of the result and of the updates themselves; the values are the same up to rounding. They are
read as ``blocks.MANY``, so that a test can make them small.
"""

# Rows that are handled in one piece.
MANY = 2048

# Rows and columns of a tile whose distances are summed up in the processor's cache.
TILE = 128
STRIP = 512
