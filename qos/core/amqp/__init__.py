"""AMQP 1.0 without I/O: values, sections of a message, SASL, resumed deliveries."""
