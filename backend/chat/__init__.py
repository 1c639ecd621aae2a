"""Conversations with an engine."""
