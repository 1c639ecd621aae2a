"""Pictures of the real window: a real run on a real engine, invented GPUs, and invented runs that were recorded."""
