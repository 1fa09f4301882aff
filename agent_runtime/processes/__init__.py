"""Start processes and threads so that nothing of them outlives the process that started them."""
