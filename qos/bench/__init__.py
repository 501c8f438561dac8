"""Measures this library, and for comparison its floor and other systems.

No other package imports this one: the libraries that it needs are in the extra `bench`.
"""
