"""The leaderboard: the trials of all suites together."""
