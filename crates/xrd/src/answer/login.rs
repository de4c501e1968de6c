//! The answer to `login`: session (16), then the ways of authentication as text; none: the client is in.

use crate::Malformed;
use crate::frame::SessionId;
use crate::wire::{Reader, without_nul};

/// A session begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginAnswer {
    /// For connections that join it.
    pub session: SessionId,
    /// The ways of authentication: `&P=unix&P=…`; empty when none is needed.
    pub methods: Vec<u8>,
}

impl LoginAnswer {
    /// Appends the answer without its head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.0);
        out.extend_from_slice(&self.methods);
    }

    /// Reads what is behind the head. Old managers send nothing at all.
    pub fn parse(bytes: &[u8]) -> Result<LoginAnswer, Malformed> {
        if bytes.is_empty() {
            return Ok(LoginAnswer { session: SessionId::default(), methods: Vec::new() });
        }
        let mut reader = Reader::new(bytes);
        let session = SessionId(reader.array()?);
        Ok(LoginAnswer { session, methods: without_nul(reader.rest()).to_vec() })
    }

    /// The names of the ways of authentication, with what belongs to each.
    pub fn method_list(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let parts = crate::path::pairs(&self.methods).filter(|(key, _)| *key == b"P");
        parts.map(|(_, value)| match value.iter().position(|byte| *byte == b',') {
            Some(at) => (&value[..at], &value[at + 1..]),
            None => (value, &value[..0]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn round_trip_and_methods() {
        let methods = b"&P=ztn,0:4096:&P=unix".to_vec();
        let answer = LoginAnswer { session: SessionId([4; 16]), methods };
        let mut out = Vec::new();
        answer.encode(&mut out);
        assert_eq!(LoginAnswer::parse(&out), Ok(answer.clone()));
        let list: Vec<_> = answer.method_list().collect();
        assert_eq!(list, [(&b"ztn"[..], &b"0:4096:"[..]), (b"unix", b"")]);
        assert!(LoginAnswer::parse(&out[..15]).is_err());
        assert!(LoginAnswer::parse(b"").is_ok());
    }
}
