"""A day of work behind the proxies that people have."""
