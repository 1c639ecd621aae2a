"""Pictures of the real window: a real run on a real engine, and GPUs that are invented."""
