"""Ridge regression by action, from Gram matrices."""
