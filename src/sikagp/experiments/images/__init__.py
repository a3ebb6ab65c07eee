"""Images on their way to a network: augmented, corrupted, turned into cached features."""
