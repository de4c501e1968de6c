//! HTTP semantics as pure functions: request heads, ranges, conditionals, digests, listings
