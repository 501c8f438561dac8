"""Fixtures for each test of this folder, in modules that mypy checks."""

from rest_clock import body_clock, patient
from rest_fixtures import bench, clock, timed

__all__ = ["bench", "body_clock", "clock", "patient", "timed"]
