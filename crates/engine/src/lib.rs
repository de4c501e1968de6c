//! The one engine: lanes, plan, verification and journal move the bytes of one file
