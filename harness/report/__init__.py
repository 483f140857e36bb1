"""Records to tables. Reads records; imports neither execution nor Ray."""
