"""A slixmpp stream that logs in, stays connected, and closes in order.

Not imported by `import qos`: it needs slixmpp.
"""
