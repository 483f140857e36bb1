"""What is shown while a suite runs."""
