"""The Speculative page: drafters race against plain decoding."""
