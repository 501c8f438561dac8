"""The rules of HornetQ's dialect of REST-*, without I/O."""
