"""Fixtures for each test of this folder; see amqp_fixtures.py, which mypy checks."""

from amqp_fixtures import bench, clock, timed

__all__ = ["bench", "clock", "timed"]
