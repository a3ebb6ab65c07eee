"""Text experiments: encoders, cached features, heads that only texts are compared with, scores."""
