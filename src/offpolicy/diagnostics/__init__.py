"""What supports or undermines an answer."""
