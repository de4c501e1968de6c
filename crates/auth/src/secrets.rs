//! Files with secrets of a site: for macaroons, and for what is sealed at rest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gridlane_core::{Error, ErrorKind, Fault, Result};

/// Reads the text of a file with secrets: base64 over any number of lines, as `openssl rand -base64 64` writes it, and
/// further secrets behind lines `---`. The first is the newest. Lines with a `#` in front of a secret are comments. There
/// is at least one.
///
/// Fails for what is not base64, and for secrets of fewer than `bytes_min` bytes.
pub fn parse(text: &str, bytes_min: usize) -> Result<Vec<Vec<u8>>> {
    let wrong = |what: String| {
        Error::new(ErrorKind::Usage, what)
            .fault(Fault::Caller)
            .hint("make a secret with: openssl rand -base64 64")
    };
    let mut secrets = vec![String::new()];
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let Some(secret) = secrets.last_mut() else { continue };
        if line == "---" {
            secrets.push(String::new());
        } else if !(line.starts_with('#') && secret.is_empty()) {
            if let Some(letter) =
                line.chars().find(|letter| !letter.is_ascii_alphanumeric() && !"+/=".contains(*letter))
            {
                return Err(wrong(format!("line {number} of the secrets is not base64: it has {letter:?}")));
            }
            secret.push_str(line);
        }
    }
    let decode = |(number, secret): (usize, &String)| {
        let bytes = STANDARD
            .decode(secret)
            .map_err(|_| wrong(format!("secret {number} is not base64, or not all of it is there")))?;
        if bytes.len() < bytes_min {
            let length = bytes.len();
            return Err(wrong(format!(
                "secret {number} has {length} bytes, and must have {bytes_min} or more"
            )));
        }
        Ok(bytes)
    };
    (1..).zip(&secrets).map(decode).collect()
}
