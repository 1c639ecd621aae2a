"""`make bench`: what Specdeck costs, each budget with its figure; prints and fails nothing."""
