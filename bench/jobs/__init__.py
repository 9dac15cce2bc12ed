"""Programs that the benchmarks start as processes of their own; each prints one JSON document in the end."""
