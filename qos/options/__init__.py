"""Options by their names, as the commands and the formats of Spark have them."""
