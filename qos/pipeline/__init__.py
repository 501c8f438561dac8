"""The names of before for what is in `qos.audit` and `qos.spark` now; gone in 0.2."""
