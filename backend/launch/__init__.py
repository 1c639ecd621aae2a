"""From a profile to a running, healthy engine and back to nothing."""
