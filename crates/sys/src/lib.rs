//! Safe faces of the system calls that Rust's libraries do not offer; the only unsafe code
