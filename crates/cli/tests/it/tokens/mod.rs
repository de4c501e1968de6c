//! JSON Web Tokens: by us and by others, and what a server makes of them.

mod others;
mod served;
