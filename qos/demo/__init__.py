"""What `xmpp-qos demo` shows; the command itself is in `qos.cli.demo`."""
