"""Flower's commands and the processes of a federation: started, watched, and stopped."""
