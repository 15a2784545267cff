"""Many runs: their plan, their execution, and the table that compares them."""
