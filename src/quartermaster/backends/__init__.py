"""Storage systems: the protocols they meet, and one folder for each."""
