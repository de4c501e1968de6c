//! The credential with which the active server comes to the passive one, in the user's name.
//!
//! It is what this client would show there itself: the user and password of the URL, or the user's token; of a user with a
//! certificate, a macaroon that the passive server gives for this file and for this purpose. It is shown to the active server,
//! so that both must be servers that may see the user's credentials, and nothing travels in clear (see
//! [`Request::secrets`](gridlane_peer::http::Request)).

use base64::Engine as _;
use gridlane_core::limits::{MACAROON_DEFAULT, MACAROON_MAX, THIRD_PARTY_MACAROON_BYTES_PER_S};
use gridlane_core::{Error, Result, Secret, Url};
use gridlane_peer::{Client, Renewal, sends_password};
use percent_encoding::percent_decode_str;

use super::terms::Mode;
use crate::macaroon::ask_macaroon;

/// The value of `Authorization` for the passive server.
#[derive(Debug, Default)]
pub(super) struct Credential {
    pub(super) value: Option<Secret>,
    /// Why there is none, where the user has one that cannot be passed on.
    pub(super) lacks: Option<Error>,
}

/// Finds a credential in place of one that the passive server has refused, in mid-copy or before; what there is instead. A macaroon
/// is always another one, and no better than one that is fresh (`is_fresh`).
pub(super) async fn renewed(
    client: &Client,
    url: &Url,
    mode: Mode,
    size_bytes: Option<u64>,
    refused: Option<&Secret>,
    is_fresh: bool,
) -> Result<(Credential, Renewal)> {
    let token = refused.and_then(|value| value.expose().strip_prefix("Bearer ").map(Secret::new));
    let has_token = !matches!(client.credentials.token(), Ok(None));
    let renewal = match token.filter(|_| has_token) {
        Some(token) => client.credentials.renew_token(&token),
        None if is_fresh && refused.is_some() => Renewal::Same,
        None => Renewal::Another,
    };
    if let Renewal::Over(_) | Renewal::Same = renewal {
        return Ok((Credential { value: refused.cloned(), lacks: None }, renewal));
    }
    let found = credential(client, url, mode, size_bytes).await?;
    let is_same = match (&found.value, refused) {
        (Some(now), Some(before)) => now == before,
        (now, before) => now.is_none() && before.is_none(),
    };
    Ok((found, if is_same { Renewal::Same } else { Renewal::Another }))
}

/// Finds the credential for the passive server of `url`, for a file of so many bytes if that is known.
pub(super) async fn credential(
    client: &Client,
    url: &Url,
    mode: Mode,
    size_bytes: Option<u64>,
) -> Result<Credential> {
    let given = |value: Secret| Credential { value: Some(value), lacks: None };
    if let Some((user, password)) = url.credentials().filter(|_| !url.scheme().is_root()) {
        // Elsewhere it is not sent either.
        let is_sent = sends_password(url);
        return Ok(if is_sent { given(basic(user, password)) } else { Credential::default() });
    }
    let credentials = &client.credentials;
    let may_see = url.scheme().is_encrypted() && credentials.may_see(url, url);
    // What opens the file is in the URL, and travels in it.
    if url.has_secrets() || !may_see {
        return Ok(Credential::default());
    }
    if let Some(token) = credentials.token()? {
        return Ok(given(Secret::new(format!("Bearer {}", token.secret.expose()))));
    }
    if credentials.certificate().is_none() || !url.scheme().is_http() {
        return Ok(Credential::default());
    }
    let activity = match mode {
        Mode::Pull => "activity:DOWNLOAD,LIST",
        Mode::Push => "activity:LIST,DOWNLOAD,MANAGE,UPLOAD,DELETE",
    };
    let copying_s = size_bytes.unwrap_or(0) / THIRD_PARTY_MACAROON_BYTES_PER_S;
    let lifetime_s = MACAROON_DEFAULT.as_secs().saturating_add(copying_s).min(MACAROON_MAX.as_secs());
    match ask_macaroon(client, url, &[activity.to_owned()], lifetime_s).await {
        Ok(macaroon) => Ok(given(Secret::new(format!("Bearer {}", macaroon.text.expose())))),
        // Public files need none.
        Err(why) => Ok(Credential { value: None, lacks: Some(why) }),
    }
}

/// RFC 7617.
fn basic(user: &str, password: &str) -> Secret {
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [&decoded(user)[..], b":", &decoded(password)].concat();
    Secret::new(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridlane_core::Url;
    use gridlane_net::tls::Trust;
    use gridlane_peer::{Credentials, Token, TokenSource};

    struct OneToken;

    impl TokenSource for OneToken {
        fn token(&self) -> Result<Token> {
            Ok(Token { secret: Secret::new("abc.def"), from: "a test".to_owned() })
        }
    }

    async fn found(text: &str) -> Option<String> {
        let credentials = Credentials::new(Some(Box::new(OneToken)), None, Vec::new());
        for named in ["https://se.example/", "http://se.example/", "roots://se.example/"] {
            credentials.name(&Url::parse_absolute(named).unwrap());
        }
        let client = crate::connect(Trust::default()).credentials(credentials);
        let url = Url::parse_absolute(text).unwrap();
        let credential = credential(&client, &url, Mode::Pull, None).await.unwrap();
        credential.value.map(|value| value.expose().to_owned())
    }

    #[tokio::test]
    async fn a_credential_goes_where_this_client_would_show_it_itself() {
        for (url, expected) in [
            ("https://se.example/f", Some("Bearer abc.def")),
            ("roots://se.example//f", Some("Bearer abc.def")),
            ("http://se.example/f", None),
            ("https://other.example/f", None),
            ("https://se.example/f?authz=secret", None),
            ("https://ada:l%40ve@se.example/f", Some("Basic YWRhOmxAdmU=")),
            ("http://ada:l%40ve@se.example/f", None),
            ("http://ada:l%40ve@127.0.0.1/f", Some("Basic YWRhOmxAdmU=")),
        ] {
            assert_eq!(found(url).await.as_deref(), expected, "{url}");
        }
    }
}
