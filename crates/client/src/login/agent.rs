//! Tokens of oidc-agent: asked for at its socket, for an account that its user has loaded.
//!
//! The request is one JSON object, and so is the answer, after which the agent closes the connection (oidc-agent's "IPC-API").
//! oidc-agent 4.2 of Debian takes requests in clear from every client, and answers them in clear; its own programs encrypt.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gridlane_core::limits::{AGENT_ANSWER_BYTES_MAX, LOGIN_ANSWER_MAX, TOKEN_BYTES_MAX};
use gridlane_core::text::printable;
use gridlane_core::{Error, ErrorKind, Fault, Result, Secret};
use serde_json::{Value, json};

use super::issuer::now_s;
use super::store::Access;
use super::usage;

/// The socket of the agent that this user's programs are told of.
pub(crate) fn socket(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<PathBuf> {
    let socket = variable("OIDC_SOCK").filter(|value| !value.is_empty()).map(PathBuf::from);
    socket.ok_or_else(|| {
        usage("OIDC_SOCK is not set, so that it is not known where oidc-agent is")
            .hint("start it, and add the account: eval $(oidc-agent); oidc-add ACCOUNT")
    })
}

/// An access token of `account` that is good for so many seconds, or a new one. Blocks.
pub(crate) fn ask(socket: &Path, account: &str, valid_s: u64) -> Result<Access> {
    let request = json!({
        "request": "access_token", "account": account, "min_valid_period": valid_s,
        "application_hint": "gridlane",
    });
    let at = |cause: &std::io::Error| {
        Error::network(format!("cannot ask oidc-agent at {}", socket.display()), cause)
            .fault(Fault::Local)
            .hint("is it running? eval $(oidc-agent); oidc-add ACCOUNT")
    };
    let answer = asked(socket, request.to_string().as_bytes()).map_err(|cause| at(&cause))?;
    read(&answer, account)
}

fn asked(socket: &Path, request: &[u8]) -> std::io::Result<Vec<u8>> {
    // The agent asks the issuer in its turn.
    let end = Instant::now() + 2 * LOGIN_ANSWER_MAX;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(LOGIN_ANSWER_MAX))?;
    stream.write_all(request)?;
    let (mut answer, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buf) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buf[..count]),
            Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
            Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "it does not answer"));
            }
            Err(cause) => return Err(cause),
        }
        // Some versions keep the connection: the answer ends where its object does.
        if answer.len() > AGENT_ANSWER_BYTES_MAX || serde_json::from_slice::<Value>(&answer).is_ok() {
            break;
        }
        if left <= Duration::from_millis(1) {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "it does not end its answer"));
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    Ok(answer)
}

/// Reads the agent's answer.
fn read(answer: &[u8], account: &str) -> Result<Access> {
    let broken =
        |why: &str| Error::new(ErrorKind::Protocol, format!("oidc-agent's answer is not understood: {why}"));
    if answer.len() > AGENT_ANSWER_BYTES_MAX {
        return Err(broken("it is too long"));
    }
    let answer: Value = serde_json::from_slice(answer).map_err(|_| broken("it is not JSON"))?;
    if answer["status"] != "success" {
        let words: String =
            printable(answer["error"].as_str().unwrap_or("it does not say why")).chars().take(300).collect();
        let error = Error::new(ErrorKind::Denied, format!("oidc-agent has no token of {account:?}: {words}"));
        return Err(error
            .fault(Fault::Caller)
            .hint("load the account: oidc-add ACCOUNT (all of them: oidc-add -l)"));
    }
    let token = answer["access_token"].as_str().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_plain) {
        return Err(broken("its token is not written as tokens are"));
    }
    let ends_s = answer["expires_at"].as_i64().filter(|ends_s| *ends_s > 0);
    Ok(Access { secret: Secret::new(token), began_s: now_s(), ends_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let good =
            br#"{"status":"success","access_token":"a.b","issuer":"https://i/","expires_at":1800000000}"#;
        let access = read(good, "x").unwrap();
        assert_eq!((access.secret.expose(), access.ends_s), ("a.b", Some(1_800_000_000)));
        let refused =
            read(br#"{"status":"failure","error":"No account\u001b configured"}"#, "x").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.message().contains("\"x\"") && !refused.message().contains('\u{1b}'), "{refused}");
        let long = vec![b' '; AGENT_ANSWER_BYTES_MAX + 1];
        for bad in [
            &b""[..],
            b"[]",
            b"{",
            &long,
            br#"{"status":"success"}"#,
            br#"{"status":"success","access_token":"a\nb"}"#,
        ] {
            assert!(read(bad, "x").is_err());
        }
    }
}
