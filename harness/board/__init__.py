"""What the results of several suites say together: the leaderboard, the site, ground truths, and what differs."""
