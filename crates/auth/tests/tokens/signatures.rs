//! Signatures: keys and algorithms.

use ring::hmac;

use super::signer::{encoded, key_set};
use super::*;
use gridlane_auth::token::keys::Algorithm;

fn cause(token: &str, keys: &KeySet) -> Cause {
    verified(token, keys).unwrap_err().cause
}

#[test]
fn every_algorithm_verifies_what_it_signed_and_nothing_else() {
    let rsa = Signer::new(Algorithm::Rs256, "rsa");
    for algorithm in Algorithm::ALL {
        let own;
        let signer = match algorithm {
            Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => {
                own = Signer::new(algorithm, "it");
                &own
            }
            _ => &rsa,
        };
        let header = encoded(json!({"alg": algorithm.name(), "kid": signer.id}).to_string());
        let signed = format!("{header}.{}", encoded(wlcg().to_string()));
        let signature = signer.sign(algorithm, signed.as_bytes());
        let token = |signature: &[u8]| format!("{signed}.{}", encoded(signature));
        let keys = signer.key_set();
        assert_eq!(verified(&token(&signature), &keys).unwrap().subject, "b7a4", "{algorithm:?}");
        for at in [0, signature.len() / 2, signature.len() - 1] {
            let mut changed = signature.clone();
            changed[at] ^= 1;
            assert_eq!(cause(&token(&changed), &keys), Cause::BadSignature, "{algorithm:?} {at}");
        }
        for length in [0, 1, signature.len() - 1] {
            assert_eq!(
                cause(&token(&signature[..length]), &keys),
                Cause::BadSignature,
                "{algorithm:?} {length}"
            );
        }
        assert_eq!(cause(&token(&[&signature[..], &[0]].concat()), &keys), Cause::BadSignature);
        let other = Signer::new(signer.algorithm, &signer.id);
        assert_eq!(cause(&token(&signature), &other.key_set()), Cause::BadSignature, "{algorithm:?}");
        // An issuer that says what its key is for is believed.
        for only in Algorithm::ALL {
            let mut jwk = signer.jwk();
            jwk["alg"] = only.name().into();
            let result = verified(&token(&signature), &key_set(&[jwk]));
            assert_eq!(result.is_ok(), only == algorithm, "{only:?} {algorithm:?}");
        }
    }
}

/// RFC 8725, 2.1: the proof by a public key depends on the algorithm, and the token names it.
#[test]
fn a_public_key_is_no_secret() {
    let signer = Signer::new(Algorithm::Rs256, "rsa");
    let keys = signer.key_set();
    let jwk = signer.jwk();
    for name in
        ["HS256", "hs256", "none", "None", "nOnE", "", "RS1", "ES512", "ES256K", "rs256", "RSA-OAEP", "dir"]
    {
        let header = json!({"alg": name, "kid": "rsa"}).to_string();
        let signed = format!("{}.{}", encoded(header), encoded(wlcg().to_string()));
        for secret in [jwk["n"].to_string(), jwk.to_string(), String::new()] {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
            for token in [format!("{signed}.{}", encoded(tag)), format!("{signed}.")] {
                let refusal = verified(&token, &keys).unwrap_err();
                assert_eq!(refusal.cause, Cause::Unacceptable, "{name}");
                assert!(refusal.message.contains("RS256"), "{refusal}");
            }
        }
    }
    // What is for HMAC is no key here, also if an issuer publishes it.
    let secret = json!({"kty": "oct", "k": "AAAA", "kid": "rsa", "alg": "HS256"});
    assert!(key_set(&[secret]).keys().is_empty());
    // A key of another kind is not used, whatever the header says.
    for (algorithm, kid) in [("ES256", "rsa"), ("EdDSA", "rsa"), ("ES384", "rsa")] {
        let token = signer.token_with(&json!({"alg": algorithm, "kid": kid}), &wlcg());
        assert_eq!(cause(&token, &keys), Cause::Unacceptable, "{algorithm}");
    }
}

#[test]
fn which_key() {
    let first = Signer::new(Algorithm::Es256, "first");
    let second = Signer::new(Algorithm::Es256, "second");
    let both = key_set(&[first.jwk(), second.jwk()]);
    assert!(
        verified(&first.token(&wlcg()), &both).is_ok() && verified(&second.token(&wlcg()), &both).is_ok()
    );
    let refusal = verified(&second.token(&wlcg()), &first.key_set()).unwrap_err();
    assert_eq!(refusal.cause, Cause::UnknownKey);
    let unknown =
        verify(&first.token(&wlcg()), &[issuer()], |_| None, &[SERVER.to_owned()], NOW_S).unwrap_err();
    assert_eq!(unknown.cause, Cause::UnknownKey);
    // Signed by the first, said to be by the second.
    let token = first.token_with(&json!({"alg": "ES256", "kid": "second"}), &wlcg());
    assert_eq!(cause(&token, &both), Cause::BadSignature);
    // Two keys of one name, of different kinds: the one that fits.
    let namesake = Signer::new(Algorithm::Es384, "first");
    let namesakes = key_set(&[namesake.jwk(), first.jwk()]);
    assert!(verified(&first.token(&wlcg()), &namesakes).is_ok());
    // Without a name.
    let nameless = |claims: &Value| first.token_with(&json!({"alg": "ES256"}), claims);
    assert_eq!(cause(&nameless(&wlcg()), &first.key_set()), Cause::Malformed, "WLCG demands kid");
    assert!(verified(&nameless(&scitoken()), &first.key_set()).is_ok());
    assert_eq!(cause(&nameless(&scitoken()), &both), Cause::Unacceptable);
    assert_eq!(cause(&nameless(&scitoken()), &KeySet::default()), Cause::UnknownKey);
    assert_eq!(cause(&nameless(&scitoken()), &namesake.key_set()), Cause::Unacceptable);
}

#[test]
fn headers() {
    let signer = Signer::shared();
    for (more, expected) in [
        (json!({}), None),
        (json!({"typ": null}), Some(Cause::Malformed)),
        (json!({"typ": "at+jwt"}), None),
        (json!({"typ": "application/AT+JWT"}), None),
        (json!({"typ": "logout+jwt"}), Some(Cause::Unacceptable)),
        (json!({"typ": "dpop+jwt"}), Some(Cause::Unacceptable)),
        (json!({"crit": ["exp"], "exp": 1}), Some(Cause::Unacceptable)),
        (json!({"crit": []}), Some(Cause::Unacceptable)),
        (json!({"alg": 1}), Some(Cause::Malformed)),
        (json!({"kid": 1}), Some(Cause::Malformed)),
        (json!({"kid": "x".repeat(300)}), Some(Cause::Unacceptable)),
        // Keys that a token brings along are no one's word.
        (json!({"jwk": Signer::new(Algorithm::Es256, "shared").jwk(), "jku": "https://evil.example/"}), None),
        (json!({"a": [[[[[[[[[1]]]]]]]]]}), Some(Cause::Malformed)),
    ] {
        let mut header = json!({"alg": "ES256", "typ": "JWT", "kid": signer.id});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let found = verified(&signer.token_with(&header, &wlcg()), &signer.key_set());
        assert_eq!(found.err().map(|refusal| refusal.cause), expected, "{more}");
    }
    let claims = wlcg().to_string();
    for header in [r#"{"alg":"none","alg":"ES256","kid":"shared"}"#, r#"{"kid":"shared"}"#, "[]", "", "{"] {
        assert_eq!(cause(&signer.token_of(header, &claims), &signer.key_set()), Cause::Malformed, "{header}");
    }
}

#[test]
fn what_is_no_token() {
    let signer = Signer::shared();
    let token = signer.token(&wlcg());
    let keys = signer.key_set();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    for text in [
        "",
        ".",
        "..",
        "...",
        header,
        signed,
        &format!("{token}."),
        &format!(".{token}"),
        &format!(" {token}"),
        &format!("{token}\n"),
        &format!("{token}="),
        &format!("{header}=.{claims}.{signature}"),
        &format!("{header}.{claims}.{}", signature.replacen(|_: char| true, "+", 1)),
        &format!("{header}.{claims}.{}/", &signature[1..]),
        &format!("{header}.{claims} .{signature}"),
        &format!("{header}..{signature}"),
        &format!(".{claims}.{signature}"),
        "MDAxY2xvY2F0aW9uIE9wdGlvbmFs",
        "é.é.é",
    ] {
        assert_eq!(cause(text, &keys), Cause::Malformed, "{text:?}");
    }
    // Not one bit of a signature's last character may be left open: there is one text for each token.
    let last = signature.chars().last().unwrap();
    let others =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".chars().filter(|it| *it != last);
    for other in others {
        assert!(verified(&format!("{}{other}", &token[..token.len() - 1]), &keys).is_err(), "{last} {other}");
    }
    for length in 0..token.len() {
        assert!(verified(&token[..length], &keys).is_err(), "truncated to {length}");
    }
    assert_eq!(cause(&format!("{token}{}", "A".repeat(20_000)), &keys), Cause::Unacceptable);
    for header in [
        r#"{"alg":"ES256","kid":"shared"}"#,
        r#" { "alg":"ES256","kid":"shared"}"#,
        "{\n\"alg\":\"ES256\",\"kid\":\"shared\"}",
        r#"{"4":1,"alg":"ES256","kid":"shared"}"#,
    ] {
        let token = signer.token_of(header, &wlcg().to_string());
        assert!(looks_like_one(&token) && verified(&token, &keys).is_ok(), "{header}");
    }
    assert!(looks_like_one(&token) && !looks_like_one(signed) && !looks_like_one("MDAxY2xvY2F0aW9u"));
}

#[test]
fn who_is_not_on_the_list_is_asked_for_nothing() {
    let signer = Signer::shared();
    let none = |_: &Issuer| -> Option<Arc<KeySet>> { panic!("nobody's keys are looked for") };
    for iss in [
        "https://iam.example/vo",
        "https://iam.example/VO/",
        "https://evil.example/",
        "",
        "https://iam.example/vo//",
    ] {
        let token = signer.token(&with(wlcg(), &json!({ "iss": iss, "exp": 1, "wlcg.ver": "9.9" })));
        let refusal = verify(&token, &[issuer()], none, &[SERVER.to_owned()], NOW_S).unwrap_err();
        assert_eq!(refusal.cause, Cause::Untrusted, "{iss}");
        assert!(!refusal.message.contains(SERVER) && !refusal.message.contains("iam"), "{refusal}");
    }
    let token = signer.token(&wlcg());
    assert_eq!(verify(&token, &[], none, &[], NOW_S).unwrap_err().cause, Cause::Untrusted);
    for iss in [json!(null), json!(1), json!([ISSUER])] {
        let mut claims = wlcg();
        claims["iss"] = iss;
        let refusal = verify(&signer.token(&claims), &[issuer()], none, &[], NOW_S).unwrap_err();
        assert_eq!(refusal.cause, Cause::Malformed);
    }
    // Without a good signature a client learns neither this server's name nor its time.
    let bad = json!({"aud": "https://elsewhere.example", "exp": 1, "scope": "storage.read"});
    let stranger = Signer::new(Algorithm::Es256, &signer.id);
    assert_eq!(cause(&stranger.token(&with(wlcg(), &bad)), &signer.key_set()), Cause::BadSignature);
}

#[test]
fn keys_that_are_of_no_use_are_left_out() {
    let signer = Signer::shared();
    let without = |key: &str| with(signer.jwk(), &json!({ key: null }));
    let changed = |changes: Value| with(signer.jwk(), &changes);
    let x = signer.jwk()["x"].as_str().unwrap().to_owned();
    for jwk in [
        json!(null),
        json!([]),
        json!({}),
        without("kty"),
        without("crv"),
        without("x"),
        without("y"),
        changed(json!({"use": "enc"})),
        changed(json!({"use": 1})),
        changed(json!({"key_ops": ["sign"]})),
        changed(json!({"key_ops": "verify"})),
        changed(json!({"alg": "ES384"})),
        changed(json!({"alg": "HS256"})),
        changed(json!({"crv": "P-384"})),
        changed(json!({"crv": "secp256k1"})),
        changed(json!({"kty": "oct"})),
        changed(json!({"kty": "RSA"})),
        changed(json!({"x": format!("{x}=")})),
        changed(json!({"x": &x[1..]})),
        changed(json!({"kid": 5})),
        json!({"kty": "RSA", "n": encoded([255; 255]), "e": "AQAB"}),
        json!({"kty": "RSA", "n": encoded([255; 1025]), "e": "AQAB"}),
        json!({"kty": "RSA", "n": encoded([255; 256]), "e": encoded([1; 5])}),
        json!({"kty": "RSA", "n": encoded([255; 256]), "e": ""}),
        json!({"kty": "OKP", "crv": "X25519", "x": encoded([1; 32])}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": encoded([1; 31])}),
    ] {
        let keys = key_set(&[jwk.clone(), signer.jwk()]);
        assert_eq!(keys.keys().len(), 1, "{jwk}");
        assert!(verified(&signer.token(&wlcg()), &keys).is_ok());
    }
    for more in
        [json!({"key_ops": ["verify"]}), json!({"alg": "ES256"}), json!({"use": null}), json!({"x5t": "a"})]
    {
        assert_eq!(key_set(&[changed(more.clone())]).keys().len(), 1, "{more}");
    }
    // A modulus with a zero in front (as some write it) is the same number.
    let rsa = Signer::new(Algorithm::Rs256, "rsa");
    let mut modulus = super::signer::decoded(rsa.jwk()["n"].as_str().unwrap());
    modulus.insert(0, 0);
    let padded = with(rsa.jwk(), &json!({"n": encoded(modulus)}));
    assert_eq!(key_set(&[padded]), rsa.key_set());
    assert!(rsa.key_set().keys()[0].fits(Algorithm::Ps384));
}

#[test]
fn what_is_no_key_set() {
    let one = Signer::shared().jwk();
    let many = json!({"keys": vec![one; gridlane_core::limits::ISSUER_KEYS_MAX + 1]}).to_string();
    for text in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#, "<html>", &many] {
        assert!(KeySet::read(text.as_bytes()).is_err(), "{}", &text[..text.len().min(40)]);
    }
    let long = format!(r#"{{"keys":[]{}}}"#, " ".repeat(300_000));
    assert!(KeySet::read(long.as_bytes()).is_err());
    assert_eq!(KeySet::read(br#"{"keys":[]}"#).unwrap(), KeySet::default());
}
