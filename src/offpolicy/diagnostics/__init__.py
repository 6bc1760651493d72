"""What supports or undermines the answer: findings and the verdict."""
