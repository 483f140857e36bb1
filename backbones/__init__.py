"""Backbones, one file each. Drop a file in; `harness.registry` finds it at the first look-up."""

__distribution__ = "output-head-harness"
