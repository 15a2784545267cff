"""Tests of coterie.tasks."""
