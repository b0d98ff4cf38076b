"""Encoders whose attention is cheaper than softmax attention for long texts: one paper a file."""
