"""Parts that pages are made of; none knows the bridge's commands."""
