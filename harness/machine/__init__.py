"""What the harness needs to know of the machine it runs on, and how it writes files there."""
