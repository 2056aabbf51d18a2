"""The generation backend: a token trie, one forward pass a tick, and traces one can trust.

Knows torch and transformers. Refuses to know decoding strategies, figures and pages.
"""
