"""Optional accelerations: CUDA graphs, fused layers, Triton kernels, packed weights.

``PLAYGROUND_ACCEL=off`` in the environment switches all of them off; the tokens stay the same.
"""

import os


def enabled() -> bool:
    """Whether accelerations may be used."""
    return os.environ.get("PLAYGROUND_ACCEL", "on").lower() not in ("off", "0", "false", "no")
