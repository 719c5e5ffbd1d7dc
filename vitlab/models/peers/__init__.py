"""Other implementations read as ours, one architecture a file: their configuration, and their weights by our names."""
