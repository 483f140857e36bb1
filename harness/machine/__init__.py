"""Facts about the machine that the harness runs on, and safe reading and writing of files."""
