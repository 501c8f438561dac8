"""Push: the service forwards the messages of a queue to URLs (REST-*, Push)."""
