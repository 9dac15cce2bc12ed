"""What the Makefile runs: the logic lives here so that the Makefile stays a table of contents."""
