"""The generation backend: a token trie, one forward pass a tick, and traces one can trust.

Knows torch and transformers. Refuses to know decoding strategies, figures and pages.
"""

import os

# Read once, when torch is first imported. Threads that spin while they wait take the core from
# whatever else runs, a browser on the same machine say, and ticks then take ten times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
