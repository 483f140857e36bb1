"""Speed and memory of our heads and of whole training steps against the published structure. Command: harness bench."""
