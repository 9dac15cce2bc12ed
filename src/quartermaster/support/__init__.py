"""What every room stands on and what knows nothing of storage: errors, time, randomness, tasks, logs."""
