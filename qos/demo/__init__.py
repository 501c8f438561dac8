"""The demo behind `xmpp-qos demo`; the command itself is in `qos.cli.demo`."""
