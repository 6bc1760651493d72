"""What would be done: the probability of each action in each round."""
