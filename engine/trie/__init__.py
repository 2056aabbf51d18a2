"""The token trie: nodes, pooled cache, ancestor masks, backends."""
