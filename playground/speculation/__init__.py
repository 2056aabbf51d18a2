"""The speculative lab: measures drafters and checks that their output is lossless."""
