//! What a person asks for: copy, list, stat, cat, remove, checksum
