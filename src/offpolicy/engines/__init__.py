"""Who reads a log, and runs statistics over it."""
