"""Measures this library beside the floor and beside what else there is.

Nothing else imports it: what it needs is in the extra `bench`.
"""
