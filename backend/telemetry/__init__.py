"""What the engine and the host measure, as typed samples."""
