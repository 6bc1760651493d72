"""How rounds are weighted: how much more often the target policy would have done this."""
