"""A message, acknowledged or assured: both sides of it, and who may send how many."""
