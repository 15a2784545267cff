"""What the methods of several papers share: cold start, migration, weighing, server step,
inter-group step."""
