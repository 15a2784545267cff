"""Scoring models on clients' own samples."""
