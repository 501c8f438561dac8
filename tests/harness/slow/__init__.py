"""What slow links and servers cost: seconds, bytes and repeats beside what is needed.

PYTHONPATH=tests/harness python -m slow [--server prosody] [--only NAME]
"""
