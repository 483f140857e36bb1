"""Speed and memory of heads and whole training steps, compared with the published structure.

Command: `harness bench`.
"""
