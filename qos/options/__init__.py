"""The options that the commands and the Spark formats share, by name."""
