//! Secrets: passwords, tokens, keys.

use std::fmt;

/// A text that is never printed. Neither `Debug` nor an error message nor a log can show it by mistake: code that needs
/// it says so by calling [`Secret::expose`], which is where to look for leaks.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Takes a text into keeping.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself: to send it to the server that it was given for, or to compare it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_printed() {
        let secret = Secret::new("swordfish");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(…) Some(Secret(…))");
        assert_eq!(secret.expose(), "swordfish");
    }
}
