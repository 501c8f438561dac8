"""REST-* messaging without I/O: what HTTP requests mean, and how results are shown."""
