"""Pull consumers of HornetQ's dialect: what the gateway keeps of them."""
