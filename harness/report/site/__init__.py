"""The site of a results folder: all suites, the leaderboard, plots and data, for any static host."""
