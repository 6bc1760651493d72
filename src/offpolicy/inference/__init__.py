"""From sums to values, standard errors, intervals, blends and bounds."""
