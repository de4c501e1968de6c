//! Connections: listeners, protocol detection on one port, TLS, dialling
