"""Start processes and threads so that nothing of them outlives whoever started them."""
