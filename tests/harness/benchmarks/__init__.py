"""Measures this library, and for comparison its floor and other systems.

It is not shipped: `xmpp-qos bench` is the tool with which users measure their servers. The
libraries of other systems are in the dependency group `benchmarks`.
"""
