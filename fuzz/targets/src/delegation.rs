//! What the two sides of a delegation send each other: requests for a proxy, and chains that are uploaded.

use gridlane_auth::delegation::{JobToken, KeyKind, Request, accept};
use gridlane_auth::x509::Trust;

/// A request, in PEM or DER, and the same bytes as an upload: without an authority nothing of it is believed.
pub(crate) fn delegation(data: &[u8]) {
    if let Ok(request) = Request::read(data) {
        assert_eq!(KeyKind::of(request.spki()), Ok(request.kind()));
    }
    let (trust, _) = Trust::read([]);
    let refusal = accept(data, b"", "/CN=Ada", &trust, 1_800_000_000);
    assert!(!refusal.expect_err("nobody vouches for it").message.is_empty());
    if let Ok(token) = JobToken::decode(data) {
        let text = token.encode().expect("it was text before");
        assert_eq!(JobToken::decode(text.expose().as_bytes()).ok(), Some(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else what is changed in them would be tried with nothing.
    #[test]
    fn the_seeds_are_understood() {
        let seeds = crate::target("delegation").all_seeds().inputs;
        assert_eq!(Request::read(&seeds[0]).unwrap().kind(), KeyKind::P256);
        assert_eq!(Request::read(&seeds[1]).unwrap().kind(), KeyKind::P256);
        let (trust, _) = Trust::read([]);
        let refusal = accept(&seeds[2], b"", "/CN=Ada", &trust, 0).unwrap_err();
        assert!(refusal.message.contains("another key"), "{refusal}");
        assert_eq!(JobToken::decode(&seeds[3]).unwrap().issuer(), "https://issuer.example/");
    }
}
