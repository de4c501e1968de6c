//! The multi-source scheduler: which range is fetched on which lane next
