//! Storage behind the server, and the partial files that become visible only when complete
