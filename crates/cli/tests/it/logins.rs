//! Logins at an issuer: made with a code, kept, renewed by whatever uses them, and over with a reason. Tokens last seconds, and
//! refresh tokens are good once: one that is used twice ends the login.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::{Outcome, Running, cp_r, gridlane, run, run_to_show_a_secret};
use crate::support::logins::{CLIENT_SECRET, Logins};
use crate::support::rogue::closed_port_url;
use crate::support::serve::Server;
use crate::support::tools::tool;
use crate::support::{Scratch, content, secrets, until};

const AUDIENCE: &str = "https://storage.example:1094";

/// An issuer, a server that believes it, and a user.
struct Site {
    logins: Logins,
    server: Server,
    /// The user's data.
    home: Scratch,
    scratch: Scratch,
}

impl Site {
    /// Serves files below `data`.
    fn start(files: &[(&str, usize)]) -> Site {
        let logins = Logins::start(AUDIENCE);
        let (scratch, home) = (Scratch::new(), Scratch::new());
        for (number, (name, bytes)) in files.iter().enumerate() {
            scratch.file(&format!("served/data/{name}"), &content(number as u64, *bytes));
        }
        let config = format!(
            "ca = [{:?}]\n[serve]\nlisten = [\"127.0.0.1:0\"]\n\
             [[export]]\npath = \"/\"\ndirectory = {:?}\n\
             [auth]\naudiences = [{AUDIENCE:?}]\nkeys-dir = {:?}\n\
             [[auth.issuer]]\nurl = {:?}\npath = \"/data\"\n",
            logins.ca(),
            scratch.join("served"),
            scratch.join("keys"),
            logins.issuer.url,
        );
        let config = scratch.file("serve.toml", config.as_bytes());
        Site { logins, server: Server::by_file(&config), home, scratch }
    }

    /// `command`, of this user, who trusts the issuer and the server.
    fn of_user(&self, mut command: Command) -> Command {
        command.env("XDG_DATA_HOME", self.home.path());
        command.arg("--ca").arg(self.logins.ca()).arg("--ca").arg(self.server.ca());
        command
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gridlane();
        command.args(arguments);
        self.of_user(command)
    }

    /// A login that was allowed. Its tokens are good for so long.
    fn logged_in(&self, lifetime_s: i64) {
        {
            let mut state = self.logins.state();
            (state.allowed, state.lifetime_s) = (Some(true), lifetime_s);
        }
        run(self.login()).ok();
    }

    fn login(&self) -> Command {
        let issuer = self.logins.issuer.url.clone();
        self.command(&["auth", "login", &issuer, "--client-id", "lane", "--name", "atlas", "--json"])
    }

    fn file(&self) -> PathBuf {
        self.home.join("gridlane/logins/atlas.json")
    }

    fn stored(&self) -> Value {
        serde_json::from_slice(&fs::read(self.file()).unwrap()).unwrap()
    }

    /// Has the stored token taken for one that ends soon: the rest of it is twice as long as the pause between two tries to
    /// renew it.
    fn ends_soon(&self) {
        let mut stored = self.stored();
        stored["access_token"]["began_s"] = json!(now_s() - 23);
        stored["access_token"]["ends_s"] = json!(now_s() + 11);
        fs::write(self.file(), stored.to_string()).unwrap();
    }

    /// `ls` with the login.
    fn list(&self) -> Outcome {
        run(self.command(&["ls", &self.url(), "--login", "atlas", "--json"]))
    }

    fn url(&self) -> String {
        self.server.url_over("https", "data/")
    }

    /// What was asked for at the token endpoint, by the kind of the grant.
    fn grants(&self) -> Vec<String> {
        let state = self.logins.state();
        let of_tokens = state.asked.iter().filter(|(path, _, _)| path == "/token");
        of_tokens.map(|(_, form, _)| form["grant_type"].rsplit(':').next().unwrap().to_owned()).collect()
    }
}

/// Fails with this code, and says so in these words.
#[track_caller]
fn refused(outcome: Outcome, code: i32, fault: &str, is_retryable: bool, words: &[&str]) {
    let outcome = outcome.exits(code);
    let error = outcome.event("error")["error"].clone();
    assert_eq!((&error["fault"], &error["retryable"]), (&json!(fault), &json!(is_retryable)), "{error}");
    let said = format!("{} {}", error["message"], error["hint"]).replace("\\\"", "\"");
    words.iter().for_each(|words| assert!(said.contains(words), "no {words:?} in {said}"));
}

#[test]
fn a_person_logs_in_with_a_code() {
    let site = Site::start(&[("f", 10)]);
    let mut login = site.login();
    // What is in clear goes to this machine itself, and through no proxy.
    login.env("http_proxy", closed_port_url(""));
    let mut login = Running::start(login);
    until("the issuer is asked", || !site.grants().is_empty());
    assert!(login.is_running(), "it waits for the person");
    let (place, line) = secrets::command_line(login.pid());
    secrets::check(&place, &line);
    site.logins.state().allowed = Some(true);
    let outcome = login.wait().ok();
    let code = outcome.event("login.code");
    assert_eq!((&code["code"], &code["lasts_s"]), (&json!("WDJB-MJHT"), &json!(60)));
    assert!(code["page"].as_str().unwrap().starts_with("https://localhost:"), "{code}");
    let made = outcome.event("made");
    assert_eq!(
        (&made["what"], &made["name"], &made["is_renewable"]),
        (&json!("login"), &json!("atlas"), &json!(true))
    );
    assert_eq!(site.file().metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(site.file().parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);
    let asked = site.logins.state().asked[0].1.clone();
    assert_eq!((asked["scope"].as_str(), asked["client_id"].as_str()), ("openid offline_access", "lane"));

    assert_eq!(site.list().ok().event("entry")["name"], "f");
    let listed = run(site.command(&["auth", "login", "--list", "--json"])).ok().event("login");
    assert_eq!((&listed["name"], &listed["issuer"]), (&json!("atlas"), &json!(site.logins.issuer.url)));
    // What others could have read is not used.
    fs::set_permissions(site.file(), fs::Permissions::from_mode(0o644)).unwrap();
    refused(site.list(), 4, "local", false, &["can be read or changed by others (mode 644)", "chmod 600"]);
    fs::set_permissions(site.file(), fs::Permissions::from_mode(0o600)).unwrap();
    run(site.command(&["auth", "login", "--forget", "atlas"])).ok();
    refused(site.list(), 3, "caller", false, &["there is no login \"atlas\"", "gridlane auth login"]);
    assert!(!site.file().exists());
}

#[test]
fn a_login_that_is_not_allowed_is_not_made() {
    let site = Site::start(&[("f", 10)]);
    site.logins.state().allowed = Some(false);
    refused(run(site.login()), 4, "caller", false, &["was not allowed", "access_denied"]);
    assert!(!site.file().exists());
    // A secret follows no redirect to another server.
    let elsewhere = Logins::start(AUDIENCE);
    site.logins.state().allowed = Some(true);
    let token = format!("{}device", elsewhere.issuer.url);
    site.logins.state().redirect = Some(token);
    refused(run(site.login()), 4, "peer", false, &["redirects to", "another server"]);
    assert!(elsewhere.state().asked.is_empty());
    // The issuer has to call itself what it was asked as.
    let other = format!("{}/", site.logins.issuer.url);
    let wrong = site.command(&["auth", "login", &other, "--client-id", "lane", "--json"]);
    refused(run(wrong), 4, "peer", false, &["that of another issuer"]);
}

/// Files that take several lifetimes of a token: all of them come, and each renewal uses the refresh token of the one before.
#[test]
fn copies_outlive_their_tokens() {
    let files: Vec<(String, usize)> = (0..8).map(|number| (format!("f{number}"), 1_000_000)).collect();
    let files: Vec<(&str, usize)> = files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    let site = Site::start(&files);
    site.logged_in(3);
    let target = site.scratch.join("here");
    let mut copy = cp_r(site.url(), &target);
    copy.args(["--login", "atlas", "--limit-rate", "1M", "--parallel", "1"]);
    run(site.of_user(copy)).ok();
    for (number, (name, bytes)) in files.iter().enumerate() {
        crate::support::assert_copied(&target.join(name), &content(number as u64, *bytes));
    }
    let grants = site.grants();
    let renewals = grants.iter().filter(|grant| *grant == "refresh_token").count();
    assert!(renewals >= 2, "{grants:?}");
    let state = site.logins.state();
    assert_eq!(site.stored()["refresh_token"].as_str(), state.refresh.as_deref(), "the last one is kept");
}

#[test]
fn a_refresh_token_that_was_replaced_survives_a_crash() {
    let files: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
    let site = Site::start(&files.iter().map(|name| (name.as_str(), 1_000_000)).collect::<Vec<_>>());
    site.logged_in(3);
    let mut copy = cp_r(site.url(), site.scratch.join("here"));
    copy.args(["--login", "atlas", "--limit-rate", "1M", "--parallel", "1"]);
    let copy = Running::start(site.of_user(copy));
    let stored = || site.stored()["refresh_token"].as_str().map(str::to_owned);
    let state = loop {
        until("it was renewed twice, and stored", || {
            let state = site.logins.state();
            state.given >= 3 && stored() == state.refresh
        });
        // As long as this is held, the issuer gives nothing that could be lost.
        let state = site.logins.state();
        if stored() == state.refresh {
            break state;
        }
    };
    copy.kill();
    assert_eq!(stored(), state.refresh);
    drop(state);
    site.logins.state().lifetime_s = 3600;
    // Many at once: one of them renews, and no refresh token is used twice.
    let lists =
        (0..6).map(|_| Running::start(site.command(&["ls", &site.url(), "--login", "atlas", "--json"])));
    for list in lists.collect::<Vec<_>>() {
        assert_eq!(list.wait().ok().events().len(), files.len());
    }
    assert_eq!(stored(), site.logins.state().refresh, "the login is good");
}

#[test]
fn a_login_that_is_over_says_why() {
    let site = Site::start(&[("f", 10)]);
    site.logged_in(1);
    site.logins.state().is_down = true;
    until("the token has ended", || site.stored()["access_token"]["ends_s"].as_i64().unwrap() <= now_s());
    let down = site.list();
    refused(
        down,
        11,
        "peer",
        true,
        &["the token of the login atlas cannot be had", "temporarily_unavailable"],
    );
    {
        let mut state = site.logins.state();
        (state.is_down, state.refresh) = (false, None);
    }
    // The issuer's text has the refresh token in it; what is said is searched for it.
    refused(
        site.list(),
        4,
        "peer",
        false,
        &["invalid_grant: Invalid refresh token: …", "gridlane auth login"],
    );
    // The same login again, by its name.
    site.logins.state().lifetime_s = 3600;
    run(site.command(&["auth", "login", "atlas", "--json"])).ok();
    site.list().ok();
}

/// Of an answer whose access token cannot be used the next refresh token is kept: the one before is good no longer.
#[test]
fn half_of_an_answer_costs_no_login() {
    let site = Site::start(&[("f", 10)]);
    site.logged_in(1);
    until("the token has ended", || site.stored()["access_token"]["ends_s"].as_i64().unwrap() <= now_s());
    {
        let mut state = site.logins.state();
        (state.garbled, state.lifetime_s) = (1, 3600);
    }
    refused(site.list(), 1, "peer", false, &["its access_token is not written as tokens are"]);
    site.list().ok();
    assert_eq!(site.grants(), ["device_code", "refresh_token", "refresh_token"]);
}

/// A command that is done while a renewal runs waits for it: the next refresh token would be lost.
#[test]
fn a_command_does_not_end_between_an_answer_and_its_file() {
    let site = Site::start(&[("f", 1_000_000)]);
    site.logged_in(3600);
    site.ends_soon();
    site.logins.state().is_held = true;
    // A pipe that nobody reads keeps it from ending before it asks.
    let mut cat = site.command(&["cat", &site.server.url_over("https", "data/f"), "--login", "atlas"]);
    let mut cat = cat.stdout(Stdio::piped()).spawn().unwrap();
    until("the issuer has given the next token", || site.logins.state().given == 2);
    let mut said = vec![0; 1_000_000];
    cat.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_ne!(site.stored()["refresh_token"].as_str(), site.logins.state().refresh.as_deref());
    // All is read, and yet it does not end.
    let read = Instant::now();
    until("it goes on for half a second", || {
        assert!(cat.try_wait().unwrap().is_none(), "it has ended without the next token");
        read.elapsed() > Duration::from_millis(500)
    });
    site.logins.state().is_held = false;
    assert!(cat.wait().unwrap().success());
    assert_eq!(site.stored()["refresh_token"].as_str(), site.logins.state().refresh.as_deref());
}

/// A disk without room for what the issuer would give: it is not asked.
#[test]
fn a_full_disk_costs_no_refresh_token() {
    let site = Site::start(&[("f", 10)]);
    site.logged_in(1);
    until("the token has ended", || site.stored()["access_token"]["ends_s"].as_i64().unwrap() <= now_s());
    site.logins.state().lifetime_s = 3600;
    let list = site.command(&["ls", &site.url(), "--login", "atlas", "--json"]);
    let mut limited = Command::new("sh");
    // Files of up to 16 KiB.
    limited.args(["-c", "ulimit -f 32; exec \"$0\" \"$@\""]).arg(list.get_program()).args(list.get_args());
    for (name, value) in list.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    refused(run(limited), 9, "local", false, &["cannot keep the login in"]);
    assert_eq!(site.grants(), ["device_code"]);
    let names: Vec<String> = crate::support::names(site.file().parent().unwrap());
    assert_eq!(names, ["atlas.json", "atlas.lock"], "nothing else is left");
    site.list().ok();
    let doctor = run(site.command(&["doctor", "--login", "atlas", "--json"])).text();
    assert!(
        doctor.contains("the login atlas: JSON Web Token") && doctor.contains("renewed when it is used"),
        "{doctor}"
    );
}

#[test]
fn tokens_are_printed_written_and_exchanged() {
    let site = Site::start(&[("f", 10), ("sub/g", 10)]);
    site.logged_in(100);
    let given = |site: &Site| site.logins.state().given;
    let out = site.scratch.join("token");
    let file = out.to_str().unwrap();
    run(site.command(&["auth", "token", "--login", "atlas", "--out", file])).ok();
    assert_eq!((given(&site), out.metadata().unwrap().mode() & 0o777), (1, 0o600), "the known one is good");
    let by_file = site.command(&["ls", &site.url(), "--token-file", file, "--json"]);
    run(by_file).ok();
    site.logins.state().lifetime_s = 3600;
    let lasting = site.command(&["auth", "token", "--login", "atlas", "--lifetime", "30m", "--json"]);
    let made = run_to_show_a_secret(lasting).ok().event("made");
    assert!(made["lifetime_s"].as_u64().unwrap() > 1800 && given(&site) == 2, "{}", made["lifetime_s"]);
    let too_long = site.command(&["auth", "token", "--login", "atlas", "--lifetime", "2h", "--json"]);
    refused(run(too_long), 12, "peer", false, &["is good for 3"]);

    let mut exchange = site.command(&["auth", "token", "--exchange", "--login", "atlas", "--out", file]);
    exchange.args(["--scope", "storage.read:/sub", "--audience", AUDIENCE]);
    run(exchange).ok();
    let asked = site.logins.state().asked.last().unwrap().1.clone();
    assert_eq!(asked["audience"], AUDIENCE);
    assert_eq!(asked["subject_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    let list = |path: &str| {
        run(site.command(&["ls", &site.server.url_over("https", path), "--token-file", file, "--json"]))
    };
    list("data/sub/").ok();
    assert_eq!(list("data/").event("error")["error"]["class"], "denied");
    let wrong = ["auth", "token", "--exchange", "--login", "atlas", "--scope", "storage.modify:/", "--json"];
    refused(run(site.command(&wrong)), 4, "peer", false, &["invalid_scope"]);
}

#[test]
fn a_client_has_tokens_of_its_own() {
    let site = Site::start(&[("f", 10)]);
    let secret = site.scratch.file("secret", CLIENT_SECRET.as_bytes());
    let issuer = site.logins.issuer.url.clone();
    let login = || {
        let mut login =
            site.command(&["auth", "login", &issuer, "--client-id", "lane", "--name", "atlas", "--json"]);
        login.args(["--as-client", "--client-secret-file"]).arg(&secret);
        login
    };
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    refused(run(login()), 4, "caller", false, &["can be read or changed by others"]);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    site.logins.state().lifetime_s = 1;
    assert_eq!(run(login()).ok().event("made")["is_renewable"], true);
    until("the token has ended", || site.stored()["access_token"]["ends_s"].as_i64().unwrap() <= now_s());
    site.logins.state().lifetime_s = 3600;
    site.list().ok();
    assert_eq!(site.grants(), ["client_credentials", "client_credentials"]);
}

fn now_s() -> i64 {
    crate::support::issuer::now_s()
}

/// An account of oidc-agent: the agent renews, and gridlane asks it.
#[test]
fn tokens_come_from_oidc_agent() {
    let site = Site::start(&[("f", 10)]);
    let agent = Agent::start(&site);
    let list = || {
        let mut list = site.command(&["ls", &site.url(), "--login", "oidc-agent:atlas", "--json"]);
        list.env("OIDC_SOCK", &agent.socket);
        run(list)
    };
    let unknown = list();
    refused(unknown, 4, "caller", false, &["oidc-agent has no token of \"atlas\"", "oidc-add"]);
    let refresh = format!("refresh-token-of-the-agent-{}", std::process::id());
    secrets::remember(&refresh);
    {
        let mut state = site.logins.state();
        (state.refresh, state.lifetime_s) = (Some(refresh.clone()), 3);
    }
    agent.add(&site, "atlas", &refresh);
    assert_eq!(list().ok().event("entry")["name"], "f");
    let given = site.logins.state().given;
    until("the agent's token has ended, and another one is used", || {
        assert_eq!(list().ok().event("entry")["name"], "f");
        site.logins.state().given > given
    });
    let unset = site.command(&["ls", &site.url(), "--login", "oidc-agent:atlas", "--json"]);
    refused(run(unset), 2, "caller", false, &["OIDC_SOCK is not set", "oidc-add"]);
}

/// A real agent. It is ended when the value is dropped.
struct Agent {
    home: Scratch,
    socket: String,
    pid: String,
}

impl Agent {
    fn start(site: &Site) -> Agent {
        let home = Scratch::new();
        let mut command = Agent::program("oidc-agent", &home);
        command.args(["--json", "--no-autoload"]).env("SSL_CERT_FILE", site.logins.ca());
        // It leaves a process behind that keeps its output open.
        let file = home.join("told");
        let status = command.stdout(fs::File::create(&file).unwrap()).stderr(Stdio::null()).status();
        assert!(status.unwrap().success());
        let mut told = None;
        until("the agent tells its socket", || {
            told = serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).ok();
            told.is_some()
        });
        let told = told.unwrap();
        let word = |name: &str| match &told[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Agent { socket: word("socket"), pid: word("dpid"), home }
    }

    fn program(name: &str, home: &Scratch) -> Command {
        fs::create_dir_all(home.join(".config/oidc-agent")).unwrap();
        let mut command = tool(name, "oidc-agent-cli");
        command.env("HOME", home.path()).env_remove("OIDC_SOCK").env_remove("OIDCD_PID");
        command
    }

    /// Adds an account, whose refresh token is given.
    fn add(&self, site: &Site, name: &str, refresh: &str) {
        let password = self.home.file("password", b"password-of-the-account\n");
        let mut command = Agent::program("oidc-gen", &self.home);
        command.arg(name).args(["--manual", "--client-id=lane", "--client-secret=", "--prompt=none"]);
        command.args([
            "--scope=openid offline_access",
            "--flow=refresh",
            "--rt-env=TOKEN",
            "--confirm-default",
        ]);
        command.arg(format!("--iss={}", site.logins.issuer.url)).env("TOKEN", refresh);
        command.arg(format!("--cp={}", site.logins.ca().display()));
        command.arg(format!("--pw-file={}", password.display())).env("OIDC_SOCK", &self.socket);
        run(command).exits(0);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = Agent::program("oidc-agent", &self.home).arg("--kill").env("OIDCD_PID", &self.pid).output();
    }
}

/// An issuer that is away while the token is still good: the copy goes on with it, a warning comes once, and when the issuer is
/// back before the end nothing is lost.
#[test]
fn a_renewal_that_fails_is_warned_of_once_and_tried_again() {
    let files: Vec<String> = (0..16).map(|number| format!("f{number}")).collect();
    let site = Site::start(&files.iter().map(|name| (name.as_str(), 1_000_000)).collect::<Vec<_>>());
    site.logged_in(3600);
    site.ends_soon();
    site.logins.state().is_down = true;
    let mut copy = cp_r(site.url(), site.scratch.join("here"));
    copy.args(["--login", "atlas", "--limit-rate", "2M", "--parallel", "1"]);
    let copy = Running::start(site.of_user(copy));
    let tries = || site.grants().iter().filter(|grant| *grant == "refresh_token").count();
    until("a renewal has failed", || tries() >= 1);
    site.logins.state().is_down = false;
    let outcome = copy.wait().ok();
    let warnings: Vec<Value> =
        outcome.events().into_iter().filter(|event| event["type"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0]["message"].as_str().unwrap().contains("is not renewed: the issuer answered 503"),
        "{warnings:?}"
    );
    assert!(tries() >= 2 && site.logins.state().given == 2, "it is renewed when the issuer is back");
}
