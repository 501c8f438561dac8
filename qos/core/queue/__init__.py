"""A queue service (XEP-0254): its nodes, their items, and the choice of workers."""
