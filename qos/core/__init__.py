"""The decisions of the protocol: no I/O, no clock, no randomness."""
