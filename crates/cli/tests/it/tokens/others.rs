//! Other people's tokens verified by us, ours by them, and what they and we refuse: the reference implementation of
//! SciTokens in Python, and scitokens-cpp, which XRootD uses.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use gridlane_auth::identity::TokenIdentity;
use gridlane_auth::token::{self, Issuer, KeySet};
use gridlane_auth::{Asker, Cause, Grants, Identity, Operation, Policy, Refusal};
use gridlane_dav::ResourcePath;
use serde_json::{Value, json};

use crate::support::Scratch;
use crate::support::client::Running;
use crate::support::issuer::{Signer, encoded, now_s, scitoken, wlcg};
use crate::support::python;
use crate::support::tools::tool;

const ISSUER: &str = "https://issuer.example/vo";
const SERVER: &str = "https://storage.example:1094";

fn ours(token: &str, signer: &Signer) -> Result<TokenIdentity, Refusal> {
    let issuer = Issuer {
        url: ISSUER.to_owned(),
        base: ResourcePath::root(),
        may: Grants::ADMIN,
        vo: None,
        audiences: Vec::new(),
        clock_skew_s: 60,
    };
    let keys = KeySet::read(json!({"keys": [signer.jwk()]}).to_string().as_bytes()).unwrap();
    token::verify(token, &[issuer], |_| Some(Arc::new(keys)), &[SERVER.to_owned()], now_s())
}

fn may(identity: &TokenIdentity, operation: Operation, path: &str) -> bool {
    let identity = Identity::Token(identity.clone());
    let requester = Asker { identity: &identity, address: "::1".parse().unwrap() };
    Policy::default().decide(requester, operation, ResourcePath::parse(path).unwrap().names()).is_granted()
}

/// The reference implementation's answers to these jobs.
fn reference(jobs: &Value) -> Vec<Value> {
    let scratch = Scratch::new();
    let file = scratch.file("jobs", jobs.to_string().as_bytes());
    let mut script = python::tokens("tokens/reference.py");
    script.arg(file);
    let said = Running::start(script).wait().exits(0).text();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_the_reference_signs() {
    for signer in [Signer::es256("key"), Signer::rs256("key")] {
        let job = |claims: Value| json!({"sign": claims, "key": signer.private_pem(), "kid": "key", "issuer": ISSUER});
        let said = reference(&json!([
            job(json!({"ver": "scitoken:2.0", "aud": "ANY", "sub": "ada", "scope": "read:/a write:/b/c"})),
            job(json!({"ver": "scitoken:2.0", "aud": ["x", SERVER], "scope": "read:/"})),
            job(
                json!({"wlcg.ver": "1.0", "aud": SERVER, "sub": "ada", "scope": "storage.read:/a storage.create:/b"})
            ),
            job(json!({"ver": "scitoken:2.0", "aud": "https://other.example", "scope": "read:/"})),
        ]));
        let found: Vec<_> = said.iter().map(|it| ours(it["token"].as_str().unwrap(), &signer)).collect();
        let first = found[0].as_ref().unwrap();
        assert_eq!(first.subject, "ada");
        for (operation, path, expected) in [
            (Operation::Read, "/a/x", true),
            (Operation::Read, "/ab", false),
            (Operation::Overwrite, "/b/c/x", true),
            (Operation::Delete, "/b/c/x", true),
            (Operation::Create, "/b/x", false),
            (Operation::Create, "/a/x", false),
        ] {
            assert_eq!(may(first, operation, path), expected, "{operation:?} {path}");
        }
        assert!(may(found[1].as_ref().unwrap(), Operation::Read, "/x"));
        assert!(may(found[2].as_ref().unwrap(), Operation::Create, "/b/x"));
        assert_eq!(found[3].as_ref().unwrap_err().cause, Cause::WrongAudience);
    }
}

#[test]
fn the_reference_and_we_decide_alike() {
    let asked = ["/a", "/a/x", "/ab", "/", "/b/c", "/b", "/a b/x"];
    for signer in [Signer::es256("key"), Signer::rs256("key")] {
        let mut jobs = Vec::new();
        for scope in [
            "read:/a",
            "read:/",
            "read:/a write:/b/c",
            "write:/",
            "read:/a%20b",
            "read:/b/c/ write:/a",
            "queue",
        ] {
            let claims = scitoken(ISSUER, SERVER, &json!({ "scope": scope }));
            let may: Vec<_> =
                ["read", "write"].iter().flat_map(|authz| asked.map(|path| json!([authz, path]))).collect();
            jobs.push(json!({
                "judge": signer.token(&claims), "key": signer.public_pem(), "issuer": ISSUER, "audience": SERVER, "may": may,
            }));
        }
        let said = reference(&Value::Array(jobs.clone()));
        for (job, said) in jobs.iter().zip(said) {
            let identity = ours(job["judge"].as_str().unwrap(), &signer).unwrap();
            let theirs = said["may"].as_array().unwrap_or_else(|| panic!("{said}"));
            for (asked, theirs) in job["may"].as_array().unwrap().iter().zip(theirs) {
                let (authz, path) = (&asked[0], asked[1].as_str().unwrap());
                // A path that is a directory's is for nothing but what is in it: files are asked for here.
                let path = path.replace(' ', "%20");
                let operations = match authz == "read" {
                    true => vec![Operation::Read, Operation::List],
                    false => vec![Operation::Overwrite, Operation::Delete],
                };
                for operation in operations {
                    let is_directory_alone = identity.scopes.iter().any(|it| *it == format!("read:{path}/"));
                    if !is_directory_alone {
                        assert_eq!(
                            Value::Bool(may(&identity, operation, &path)),
                            *theirs,
                            "{asked} {:?}",
                            identity.scopes
                        );
                    }
                }
            }
        }
    }
}

/// scitokens-cpp, with a key of the issuer in its cache.
struct Peer {
    scratch: Scratch,
    public: PathBuf,
}

impl Peer {
    fn new(signer: &Signer) -> Peer {
        let scratch = Scratch::new();
        let public = scratch.file("public.pem", signer.public_pem().as_bytes());
        Peer { scratch, public }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = tool(name, "scitokens-cpp");
        command.env("XDG_CACHE_HOME", self.scratch.path());
        command
    }

    fn verifies(&self, token: &str) -> bool {
        let mut command = self.command("scitokens-verify");
        command.args(["--issuer", ISSUER, "--keyid", "key", "--cred"]).arg(&self.public).arg(token);
        Running::start(command).wait().code == Some(0)
    }

    /// The rights that it finds in scopes; `None` when it refuses the token.
    fn access(&self, token: &str) -> Option<Vec<String>> {
        // This is what puts the key into its cache.
        self.verifies(token);
        let mut command = self.command("scitokens-list-access");
        command.args([token, ISSUER, SERVER]);
        let outcome = Running::start(command).wait();
        let said = outcome.text();
        let lines = said.lines().filter_map(|line| line.strip_prefix("ACL: "));
        (outcome.code == Some(0)).then(|| lines.map(str::to_owned).collect())
    }
}

#[test]
fn what_scitokens_cpp_signs() {
    let signer = Signer::es256("key");
    let peer = Peer::new(&signer);
    let private = peer.scratch.file("private.pem", signer.private_pem().as_bytes());
    for (profile, scope, operation) in [
        ("wlcg", "storage.read:/a storage.stage:/b", Operation::Read),
        ("scitokens2", "read:/a", Operation::Read),
        ("scitokens2", "write:/a", Operation::Overwrite),
    ] {
        let mut command = peer.command("scitokens-create");
        command.arg("--cred").arg(&peer.public).arg("--key").arg(&private);
        command.args([
            "--keyid",
            "key",
            "--issuer",
            ISSUER,
            "--profile",
            profile,
            "--claim",
            "sub=ada",
            "--claim",
        ]);
        command.arg(format!("scope={scope}"));
        let token = Running::start(command).wait().exits(0).text();
        let identity = ours(token.trim(), &signer).unwrap_or_else(|refusal| panic!("{profile}: {refusal}"));
        assert_eq!(identity.subject, "ada");
        assert!(may(&identity, operation, "/a/x") && !may(&identity, operation, "/ab"), "{profile} {scope}");
    }
}

#[test]
fn what_scitokens_cpp_refuses() {
    let signer = Signer::es256("key");
    let peer = Peer::new(&signer);
    let stranger = Signer::es256("key");
    let now_s = now_s();
    let good = signer.token(&wlcg(ISSUER, SERVER, &json!({})));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let of = |changes: Value| signer.token(&wlcg(ISSUER, SERVER, &changes));
    let unsigned = |alg: &str| {
        let claims = wlcg(ISSUER, SERVER, &json!({}));
        let header = json!({"alg": alg, "kid": "key"}).to_string();
        format!("{}.{}", encoded(header), encoded(claims.to_string()))
    };
    // What both believe.
    for token in [
        good.clone(),
        signer.token(&scitoken(ISSUER, "ANY", &json!({}))),
        of(json!({"aud": "https://wlcg.cern.ch/jwt/v1/any"})),
        of(json!({"aud": ["a", SERVER]})),
        of(json!({"scope": "openid storage.read:/a/b storage.modify:/c"})),
    ] {
        assert!(peer.verifies(&token) && peer.access(&token).is_some(), "{token}");
        assert!(ours(&token, &signer).is_ok());
    }
    // What both refuse.
    for (what, token) in [
        ("expired", of(json!({"exp": now_s - 600, "iat": now_s - 1200, "nbf": now_s - 1200}))),
        ("not yet valid", of(json!({"nbf": now_s + 600}))),
        ("of a stranger", stranger.token(&wlcg(ISSUER, SERVER, &json!({})))),
        ("of an unknown issuer", signer.token(&wlcg("https://127.0.0.1:1/evil", SERVER, &json!({})))),
        ("for another server", of(json!({"aud": "https://other.example"}))),
        ("without an audience", of(json!({"aud": null}))),
        ("without an end", of(json!({"exp": null}))),
        ("without a beginning", of(json!({"iat": null}))),
        ("of another profile", of(json!({"wlcg.ver": "2.0"}))),
        ("of an unknown profile", signer.token(&scitoken(ISSUER, SERVER, &json!({"ver": "scitoken:9.0"})))),
        ("of alg none", format!("{}.", unsigned("none"))),
        ("of alg HS256", format!("{}.{signature}", unsigned("HS256"))),
        ("of another algorithm", format!("{}.{signature}", unsigned("RS256"))),
        ("truncated", good[..good.len() - 10].to_owned()),
        ("without a signature", format!("{signed}.")),
        ("of two parts", signed.to_owned()),
        ("of nothing", ".".to_owned()),
    ] {
        assert!(ours(&token, &signer).is_err(), "{what}: we believe it");
        let allowed = peer.access(&token);
        assert!(allowed.as_ref().is_none_or(Vec::is_empty), "{what}: it allows {allowed:?}");
    }
    // What only we refuse: this version of it makes some path of what is none.
    for path in ["", ":a", ":/../a", ":/a/../b", ":/%2e%2e/a", ":/a%2fb"] {
        let token = of(json!({"scope": format!("storage.read{path}")}));
        assert_eq!(ours(&token, &signer).unwrap_err().cause, Cause::Malformed, "{path}");
        assert!(peer.verifies(&token), "{path}: it has become strict, and can go to the others");
    }
}
