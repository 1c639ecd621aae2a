"""The desktop window; everything it shows comes from the backend."""
