"""What is summed: statistics that fold over batches and merge over partitions."""
