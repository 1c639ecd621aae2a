"""What a launch needs and what it can give: pure functions."""
