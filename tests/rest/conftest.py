"""Fixtures for each test of this folder; see rest_clock.py, which mypy checks."""

from rest_clock import body_clock, patient

__all__ = ["body_clock", "patient"]
