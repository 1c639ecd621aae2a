"""The pages of the window, one each."""
