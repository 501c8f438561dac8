"""A message, acknowledged or assured: its sender, its receiver, windows and limits."""
