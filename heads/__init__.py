"""Output heads, one file each. To add a head, add a file: `harness.registry` finds it at the first look-up."""

__distribution__ = "output-head-harness"
