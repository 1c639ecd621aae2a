"""What the window works at: the current run, its figures, log and chat, the profiles and the engines."""
