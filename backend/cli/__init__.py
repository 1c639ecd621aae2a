"""The `specdeck` command; each module holds the commands of one room."""
