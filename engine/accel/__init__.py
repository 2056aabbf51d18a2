"""Optional: CUDA graphs, fused layers, Triton kernels and packed weights. Off: equal tokens."""
