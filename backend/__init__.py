"""Everything Specdeck does without a window: engines, profiles, telemetry and the command line."""
