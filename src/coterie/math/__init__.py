"""Similarity, clustering, transport and balanced clusters: arrays in, arrays out, no federation."""
