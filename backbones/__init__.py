"""Backbones, one file each. To add a backbone, add a file: `harness.registry` finds it at the first look-up."""

__distribution__ = "output-head-harness"
