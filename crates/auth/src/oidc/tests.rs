//! Requests are as the specifications have them, answers of any kind are bounded and repeat no secret.

use std::time::Duration;

use gridlane_core::{Secret, limits};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::refusal::Cause;

const ISSUER: &str = "https://iam.example/vo";

fn described(changes: Value) -> Vec<u8> {
    let mut document = json!({
        "issuer": ISSUER, "token_endpoint": "https://iam.example/token",
        "device_authorization_endpoint": "https://iam.example/devicecode",
    });
    for (key, value) in changes.as_object().unwrap() {
        document[key] = value.clone();
    }
    document.to_string().into_bytes()
}

fn provider() -> Provider {
    read_provider(&described(json!({})), ISSUER).unwrap()
}

fn client(secret: Option<&str>) -> Client {
    Client { id: "grid lane".into(), secret: secret.map(Secret::new) }
}

fn call(grant: Grant<'_>) -> Call {
    token_call(&provider(), &client(None), grant, None, None)
}

fn refresh_call() -> Call {
    call(Grant::Refresh(&Secret::new("refresh-secret")))
}

fn read(status: u16, body: &Value) -> Result<Result<Tokens, IssuerWords>, Unusable> {
    read_tokens(status, body.to_string().as_bytes(), &refresh_call(), 1000)
}

#[test]
fn an_issuer_is_found_and_believed_of_itself_only() {
    let places = |issuer: &str| documents(issuer).map(|places| places.map(|url| url.as_str().to_owned()));
    assert_eq!(
        places("https://iam.example/vo/").unwrap(),
        [
            "https://iam.example/vo/.well-known/openid-configuration",
            "https://iam.example/.well-known/oauth-authorization-server/vo"
        ]
    );
    assert!(places("http://127.0.0.1:8080").is_ok() && places("http://localhost/x").is_ok());
    for bad in [
        "http://iam.example/",
        "iam.example",
        "https://a@iam.example",
        "https://iam.example/?x",
        "https://h/#",
        "",
    ] {
        assert!(places(bad).is_err(), "{bad}");
    }
    assert_eq!(provider().device.unwrap().as_str(), "https://iam.example/devicecode");
    let cause = |changes: Value| read_provider(&described(changes), ISSUER).unwrap_err().cause;
    assert_eq!(cause(json!({"issuer": "https://iam.example/vo/"})), Cause::Untrusted);
    assert_eq!(cause(json!({"token_endpoint": "http://iam.example/token"})), Cause::Unacceptable);
    assert_eq!(cause(json!({"token_endpoint": "https://u:p@iam.example/"})), Cause::Unacceptable);
    assert_eq!(cause(json!({"device_authorization_endpoint": "file:///etc"})), Cause::Unacceptable);
    assert_eq!(cause(json!({"token_endpoint": 1})), Cause::Malformed);
    let without = read_provider(format!("{{\"issuer\":{ISSUER:?}}}").as_bytes(), ISSUER);
    assert_eq!(without.unwrap_err().cause, Cause::Malformed);
    let long = vec![b' '; limits::ISSUER_DOCUMENT_BYTES_MAX + 1];
    assert_eq!(read_provider(&long, ISSUER).unwrap_err().cause, Cause::Unacceptable);
}

#[test]
fn requests_say_what_is_wanted_and_who_asks() {
    let code = Secret::new("a code&x=1");
    let asked = token_call(&provider(), &client(None), Grant::Device(&code), None, Some(""));
    assert_eq!(
        asked.body.expose(),
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code\
         &device_code=a%20code%26x%3D1&client_id=grid%20lane"
    );
    assert!(asked.authorization.is_none());
    let subject = Secret::new("eyJ.x.y");
    let exchange = Grant::Exchange { subject: &subject, wanted: TokenType::Refresh };
    let scopes = Some("storage.read:/a offline_access");
    let asked = token_call(&provider(), &client(Some("s:e")), exchange, scopes, Some("https://se"));
    let body = asked.body.expose();
    for part in [
        "subject_token=eyJ.x.y",
        "&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token",
        "&requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Arefresh_token",
        "&scope=storage.read%3A%2Fa%20offline_access&audience=https%3A%2F%2Fse",
    ] {
        assert!(body.contains(part), "no {part} in {body}");
    }
    // RFC 6749, 2.3.1: both are encoded before they are joined.
    let expected = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode("grid%20lane:s%3Ae")
    };
    assert_eq!(asked.authorization.unwrap().expose(), format!("Basic {expected}"));
    let in_body = json!({"token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"]});
    let provider = read_provider(&described(in_body), ISSUER).unwrap();
    let asked = token_call(&provider, &client(Some("s:e")), Grant::Client, None, None);
    assert_eq!(
        asked.body.expose(),
        "grant_type=client_credentials&client_id=grid%20lane&client_secret=s%3Ae"
    );
    let none = Provider { device: None, ..provider };
    assert!(device_call(&none, &client(None), None, None).is_none());
    assert!(!format!("{asked:?}").contains("s%3Ae"), "it is not shown");
}

#[test]
fn tokens_are_read() {
    let good = json!({"access_token": "abc", "token_type": "bearer", "expires_in": 3600, "refresh_token": "r2", "scope": "a b"});
    let tokens = read(200, &good).unwrap().unwrap();
    assert_eq!((tokens.access.expose(), tokens.lasts_s), ("abc", Some(3600)));
    assert_eq!(tokens.refresh.as_ref().map(Secret::expose), Some("r2"));
    assert!(!format!("{tokens:?}").contains("abc"));
    let lasts_s = |changes: Value| {
        let mut answer = json!({"access_token": "abc", "token_type": "Bearer"});
        for (key, value) in changes.as_object().unwrap() {
            answer[key] = value.clone();
        }
        read(200, &answer).unwrap().unwrap().lasts_s
    };
    assert_eq!(lasts_s(json!({})), None);
    assert_eq!(lasts_s(json!({"expires_in": "60"})), Some(60));
    assert_eq!(lasts_s(json!({"expires_in": 1e30})), Some(limits::TOKEN_LIFETIME_MAX_S));
    assert_eq!(lasts_s(json!({"expires_in": -1})), None);
    // {"exp":1060}
    assert_eq!(lasts_s(json!({"access_token": "e30.eyJleHAiOjEwNjB9.c2ln"})), Some(60));
    for bad in [
        json!({}),
        json!({"access_token": ""}),
        json!({"access_token": "a\r\nb"}),
        json!({"access_token": 1}),
        json!({"access_token": "abc", "token_type": "mac"}),
        json!({"access_token": "abc", "refresh_token": "a b"}),
        json!({"access_token": "a".repeat(limits::TOKEN_BYTES_MAX + 1)}),
    ] {
        assert_eq!(read(200, &bad).unwrap_err().refusal.cause, Cause::Malformed);
    }
    // The refresh token that was used may be good no longer: that of such an answer is not lost.
    let half = json!({"access_token": "a b", "refresh_token": "r2"});
    assert_eq!(read(200, &half).unwrap_err().refresh.as_ref().map(Secret::expose), Some("r2"));
    let kind = json!({"access_token": "abc", "token_type": "mac", "refresh_token": "r3"});
    assert_eq!(read(200, &kind).unwrap_err().refresh.as_ref().map(Secret::expose), Some("r3"));
    assert_eq!(read(200, &json!({"refresh_token": "a b"})).unwrap_err().refresh, None);
}

#[test]
fn refusals_are_told_in_the_issuers_words_without_its_secrets() {
    let words = read(
        400,
        &json!({"error": "invalid_grant", "error_description": "Invalid refresh token: refresh-secret\u{1b}[2J"}),
    );
    let words = words.unwrap().unwrap_err();
    assert!(words.is_over() && !words.is_pending());
    let said = words.to_string();
    assert!(said.starts_with("invalid_grant: Invalid refresh token: …"), "{said}");
    assert!(!said.contains("secret") && !said.contains('\u{1b}'), "{said}");
    let piece = json!({"error": "invalid_grant", "error_description": format!("no {}", "x".repeat(80))});
    assert_eq!(read(401, &piece).unwrap().unwrap_err().description.unwrap(), "no …");
    assert!(read(200, &json!({"error": "slow_down"})).unwrap().unwrap_err().is_too_often());
    assert_eq!(read(503, &json!({"error": "server_error"})).unwrap_err().refusal.cause, Cause::Unavailable);
    assert!(read(500, &json!({"error": "invalid_grant"})).unwrap().is_err());
    assert_eq!(read(502, &json!("<html>")).unwrap_err().refusal.cause, Cause::Unavailable);
    assert_eq!(read(429, &json!({})).unwrap_err().refusal.cause, Cause::Unavailable);
    assert_eq!(read(404, &json!({})).unwrap_err().refusal.cause, Cause::Malformed);
    let long = vec![b' '; limits::LOGIN_ANSWER_BYTES_MAX + 1];
    assert!(read_tokens(200, &long, &refresh_call(), 0).is_err());
}

fn granted(lasts_s: u64, interval_s: u64) -> DeviceGrant {
    let body = json!({
        "device_code": "the-code", "user_code": "WDJB-MJHT", "verification_uri": "https://iam.example/device",
        "verification_uri_complete": "https://iam.example/device?user_code=WDJB-MJHT", "expires_in": lasts_s,
        "interval": interval_s,
    });
    let call = device_call(&provider(), &client(None), Some("openid"), None).unwrap();
    read_device(200, body.to_string().as_bytes(), &call).unwrap().unwrap()
}

#[test]
fn a_code_is_read_and_bounded() {
    let grant = granted(600, 5);
    assert_eq!((grant.user_code.as_str(), grant.page.as_str()), ("WDJB-MJHT", "https://iam.example/device"));
    assert_eq!(granted(u64::MAX, u64::MAX).lasts_s, limits::DEVICE_WAIT_MAX_S);
    assert_eq!(granted(600, 0).interval_s, 1);
    let call = device_call(&provider(), &client(None), None, None).unwrap();
    for (key, value) in [
        ("verification_uri", json!("http://evil.example/")),
        ("verification_uri", json!("javascript:alert(1)")),
        ("verification_uri_complete", json!("http://evil.example/")),
        ("user_code", json!("")),
        ("user_code", json!("x".repeat(limits::USER_CODE_CHARS_MAX + 1))),
        ("device_code", json!("a b")),
        ("expires_in", json!(null)),
    ] {
        let mut body = json!({
            "device_code": "c", "user_code": "u", "verification_uri": "https://h/", "expires_in": 1,
        });
        body[key] = value;
        assert!(read_device(200, body.to_string().as_bytes(), &call).is_err(), "{body}");
    }
}

#[test]
fn the_issuer_is_asked_when_it_wants_to_be() {
    let at = Duration::from_secs;
    let said = |error: &str| IssuerWords { error: error.into(), description: None };
    let mut flow = DeviceFlow::new(&granted(60, 5), at(100));
    assert_eq!(flow.step(at(100)), Step::Wait(at(5)));
    assert_eq!(flow.step(at(105)), Step::Ask);
    assert!(flow.pending(&said("authorization_pending"), at(106)));
    assert_eq!(flow.step(at(106)), Step::Wait(at(5)));
    assert!(flow.pending(&said("slow_down"), at(111)));
    assert_eq!(flow.step(at(111)), Step::Wait(at(10)));
    flow.unreached(at(121));
    assert_eq!(flow.step(at(121)), Step::Wait(at(20)));
    flow.unreached(at(141));
    assert_eq!(flow.step(at(141)), Step::Wait(at(19)), "it ends before");
    assert_eq!(flow.step(at(160)), Step::Expired);
    assert!(!flow.pending(&said("access_denied"), at(150)));
}

proptest! {
    /// Whatever the issuer answers, there is no panic, and the secrets of the request are not in what may be shown.
    #[test]
    fn any_answer_is_bounded_and_repeats_no_secret(
        status in prop_oneof![Just(200u16), Just(400), Just(401), Just(500), any::<u16>()],
        error in "\\PC{0,40}",
        before in "\\PC{0,20}",
        after in "(?s).{0,400}",
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let call = refresh_call();
        let _ = read_tokens(status, &body, &call, 0);
        let _ = read_device(status, &body, &call);
        let _ = read_provider(&body, ISSUER);
        let clumsy = json!({"error": format!("{error}refresh-secret"), "error_description": format!("{before}refresh-secret{after}")});
        if let Ok(Err(words)) = read_tokens(status, clumsy.to_string().as_bytes(), &call, 0) {
            let said = words.to_string();
            prop_assert!(!said.contains("refresh-secret"), "{said}");
            prop_assert!(said.chars().count() <= 2 * limits::ISSUER_WORDS_CHARS_MAX + 2);
            prop_assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
        }
    }

    /// However the person and the issuer behave, the flow ends, and never asks before its interval is over.
    #[test]
    fn a_flow_ends(lasts_s in 1u64..2000, interval_s in 0u64..100, turns in proptest::collection::vec(0u8..3, 0..40)) {
        let mut flow = DeviceFlow::new(&granted(lasts_s, interval_s), Duration::ZERO);
        let (mut now, mut asked, mut turns) = (Duration::ZERO, None::<Duration>, turns.into_iter());
        for _ in 0..5000 {
            match flow.step(now) {
                Step::Expired => break,
                Step::Wait(wait) => {
                    prop_assert!(wait > Duration::ZERO);
                    now += wait;
                }
                Step::Ask => {
                    if let Some(before) = asked.replace(now) {
                        prop_assert!(now - before >= Duration::from_secs(interval_s.clamp(1, 60)));
                    }
                    match turns.next().unwrap_or(0) {
                        0 => drop(flow.pending(&IssuerWords { error: "authorization_pending".into(), description: None }, now)),
                        1 => drop(flow.pending(&IssuerWords { error: "slow_down".into(), description: None }, now)),
                        _ => flow.unreached(now),
                    }
                }
            }
        }
        prop_assert_eq!(flow.step(now), Step::Expired);
        prop_assert!(now <= Duration::from_secs(lasts_s));
    }
}
