//! Sessions to storage: HTTP and HTTPS on one port, admission and limits
