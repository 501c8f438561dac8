"""Deprecated names of modules in `qos.audit` and `qos.spark`; gone in 0.2."""
