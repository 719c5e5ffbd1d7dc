"""Speed, side by side: two things measured in turn in one run, and the median of their ratios."""
