"""What a run measures: scoring, evaluation samples, groups, costs and theory."""
