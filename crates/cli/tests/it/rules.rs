//! The effect of rules: explained before the first request, and read from other servers' files.

use crate::support::Scratch;
use crate::support::client::{Outcome, gridlane, run};

const CONFIG: &str = r#"
[auth]
client-ca = ["ca.pem"]
gridmap = "gridmap"
[[auth.issuer]]
url = "https://iam.example/"
path = "/data/atlas"
[[export]]
path = "/data"
directory = "data"
[[export]]
path = "/old"
directory = "old"
read-only = true
[[rule]]
vo = "atlas"
role = "production"
may = ["read", "list", "write", "delete"]
under = "/data/atlas"
[[rule]]
user = "ada"
may = ["read", "write"]
under = "/data/home/{user}"
[[rule]]
who = "anyone"
may = ["admin"]
under = "/old"
"#;

fn in_directory(scratch: &Scratch, words: &[&str]) -> Outcome {
    let mut command = gridlane();
    command.args(words).current_dir(scratch.path());
    run(command)
}

#[test]
fn who_may_do_what_is_known_before_anybody_asks() {
    let scratch = Scratch::new();
    scratch.file("serve.toml", CONFIG.as_bytes());
    scratch.file("gridmap", b"\"/DC=org/CN=Ada\" ada\n");
    let explain = |words: &[&str]| {
        in_directory(&scratch, &[&["auth", "explain", "--config", "serve.toml"], words].concat())
    };
    let ada = ["--dn", "/DC=org/CN=Ada"];
    let token = ["--issuer", "https://iam.example/", "--scope", "storage.read:/run1"];
    for (who, what, code, words) in [
        (&[][..], ["read", "/data/atlas/f"], 4, "without a credential"),
        (&ada, ["read", "/data/atlas/f"], 4, "is about others"),
        (&ada, ["create", "/data/home/ada/f"], 0, "granted: [[rule]] 2"),
        (&ada, ["create", "/data/home/eve/f"], 4, "is about another place"),
        (&["--dn", "/DC=org/CN=Eve"], ["read", "/data/home/ada/f"], 4, "is about others: user"),
        (
            &["--dn", "/CN=x", "--fqan", "/atlas/Role=production"],
            ["delete", "/data/atlas/f"],
            0,
            "granted: [[rule]] 1",
        ),
        (&token, ["read", "/data/atlas/run1/f"], 0, "credential: read list under /data/atlas/run1"),
        (&token, ["read", "/data/atlas/run10/f"], 4, "scopes"),
        (&token, ["delete", "/data/atlas/run1/f"], 4, "scopes"),
        (&[], ["read", "/old/f"], 0, "granted: [[rule]] 3"),
        (&[], ["delete", "/old/f"], 4, "refused"),
    ] {
        explain(&[who, &what].concat()).exits(code).says(&[words]);
    }
    explain(&["--issuer", "https://other.example/", "read", "/data"])
        .exits(2)
        .says(&["https://iam.example/"]);
    explain(&["--dn", "/CN=x", "--fqan", "atlas", "read", "/data"]).exits(2);
    explain(&["read", "data"]).exits(2).says(&["slash"]);
    in_directory(&scratch, &["auth", "explain", "read", "/"]).exits(2).says(&["--config"]);
}

#[test]
fn other_servers_files_are_read_as_rules() {
    let scratch = Scratch::new();
    scratch.file("authdb", b"u * /public rl\ng /atlas/prod /data/atlas a\nn net /x r\n");
    scratch.file("gridmap", b"\"/DC=org/CN=Ada Lovelace\" ada\n");
    let rules = in_directory(&scratch, &["auth", "import", "authdb", "authdb"]).exits(0);
    let config = format!("[[export]]\npath = \"/\"\ndirectory = \"d\"\n{}", rules.text());
    scratch.file("serve.toml", config.as_bytes());
    assert!(config.contains("netgroups"), "{config}");
    let may = |words: &[&str]| {
        let explain = ["auth", "explain", "--config", "serve.toml"];
        in_directory(&scratch, &[&explain, words].concat()).code == Some(0)
    };
    assert!(may(&["read", "/public/f"]) && !may(&["create", "/public/f"]) && !may(&["read", "/x/f"]));
    assert!(may(&["--dn", "/CN=x", "--fqan", "/atlas/prod", "delete", "/data/atlas/f"]));
    assert!(!may(&["--dn", "/CN=x", "--fqan", "/atlas", "read", "/data/atlas/f"]));
    let users = in_directory(&scratch, &["auth", "import", "gridmap", "gridmap"]).exits(0);
    users.says(&["dn = \"/DC=org/CN=Ada Lovelace\"", "may = []"]);
    in_directory(&scratch, &["auth", "import", "authdb", "gone"]).exits(3).says(&["gone"]);
}
