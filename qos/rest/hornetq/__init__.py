"""HornetQ's dialect of REST-*: the same queues in the words of its clients."""
