"""The rate and latency of messages and of a queue, at the user's own server.

Both ends run in this process, each with a session of its own. This package measures; the
command is `xmpp-qos bench`.
"""
