"""What only a GPU, or several workers, need: Triton's kernels, training steps as CUDA graphs, data-parallel trials."""
