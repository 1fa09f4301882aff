"""Kill the processes of a real service at random while they work on many jobs, and count lost and doubled jobs."""
