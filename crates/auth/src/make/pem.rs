//! Base64 between lines with dashes (RFC 7468).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gridlane_core::Result;

use super::der::unusable;

/// The label of certificates.
pub const CERTIFICATE: &str = "CERTIFICATE";
/// The label of keys in PKCS#8.
pub const PRIVATE_KEY: &str = "PRIVATE KEY";
/// The label of lists of revoked certificates.
pub const CRL: &str = "X509 CRL";

/// The label of requests for a certificate.
pub const REQUEST: &str = "CERTIFICATE REQUEST";

/// One block of a file.
pub struct Block {
    /// Its label: `CERTIFICATE`.
    pub label: String,
    /// Its contents, which may be a secret.
    pub der: Vec<u8>,
    /// True if a passphrase is needed to make sense of it.
    pub is_encrypted: bool,
}

/// One block, with a line break at its end.
pub fn encode(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII: it can be cut anywhere.
        let (line, behind) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = behind;
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// All blocks, with anything around them left out.
pub fn decode(text: &[u8]) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    // The label and the text of the block that has begun, and whether a header says that it is encrypted.
    let mut begun: Option<(String, String, bool)> = None;
    for line in text.split(|byte| *byte == b'\n') {
        // Between blocks there may be anything in any encoding.
        let line = std::str::from_utf8(line.trim_ascii()).unwrap_or_default();
        let label = |begin: &str| line.strip_prefix(begin)?.strip_suffix("-----");
        if let Some(label) = label("-----BEGIN ") {
            begun = Some((label.to_owned(), String::new(), label.starts_with("ENCRYPTED")));
        } else if label("-----END ").is_some() {
            let Some((label, text, is_encrypted)) = begun.take() else { continue };
            let der = BASE64_STANDARD.decode(text);
            let der =
                der.map_err(|_| unusable(format!("what is between the lines with {label} is not base64")))?;
            blocks.push(Block { label, der, is_encrypted });
        } else if let Some((_, text, is_encrypted)) = &mut begun {
            // Headers (RFC 1421), of which only this one means something.
            match line.contains(':') {
                true => *is_encrypted |= line.ends_with(",ENCRYPTED"),
                false if *is_encrypted && line.contains(',') => {}
                false => text.push_str(line),
            }
        }
    }
    match begun {
        Some((label, ..)) => Err(unusable(format!("it ends within the lines with {label}"))),
        None => Ok(blocks),
    }
}

/// The certificates, in their order.
pub fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>> {
    let is_certificate = |block: &Block| [CERTIFICATE, "X509 CERTIFICATE"].contains(&block.label.as_str());
    Ok(decode(text)?.into_iter().filter(is_certificate).map(|block| block.der).collect())
}
