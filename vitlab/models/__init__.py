"""Architectures, one a file, each read top to bottom; `layers` holds the little they share."""
