"""The cost of slow links and servers: seconds, bytes and repeats beside what is needed.

PYTHONPATH=tests/harness python -m slow [--server prosody] [--only NAME]
"""
