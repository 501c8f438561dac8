"""The gate: the stages of `make test`, a second try for what failed, and one page at the end."""
