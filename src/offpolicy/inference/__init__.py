"""From sums to values, standard errors and intervals."""
