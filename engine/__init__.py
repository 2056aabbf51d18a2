"""The generation backend: a token trie, one forward pass per tick, and the traces of its runs."""
