//! Options from a TOML file, and what stands in it beside them.
//!
//! ```toml
//! verbose = true          # options of every command stand at the top
//!
//! [serve]                 # a table per command, options with their long names
//! listen = ["127.0.0.1:8080"]
//!
//! [[export]]              # what `serve` serves: not options, see `serve::tables`
//! directory = "/data"
//!
//! [[rule]]                # which requests are allowed there, likewise
//! who = "anyone"
//! may = ["read"]
//!
//! [root]                  # what `serve` does over root://, likewise
//! auth = "unix"
//!
//! [auth]                  # which credentials `serve` takes, likewise: commands of `gridlane auth` have no options here
//! users = "/etc/gridlane/users"
//! ```

use clap::{Command, CommandFactory};
use gridlane_config::options::{self, OwnTables};
use gridlane_core::Result;

use crate::args::Cli;

/// Tables that `serve` reads by itself.
const OWN: OwnTables<'_> = OwnTables { lists: &["export", "rule"], tables: &["root", "auth"] };

/// The command with the defaults of the file that `--config` or `GRIDLANE_CONFIG` names.
pub(crate) fn command_with_file() -> Result<Command> {
    options::command_with_file(Cli::command(), "GRIDLANE_CONFIG", OWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;
    use gridlane_config::file;
    use gridlane_config::options::with_defaults;
    use std::path::Path;

    fn parsed(file: &str, args: &[&str]) -> Cli {
        let command = with_defaults(Cli::command(), file, OWN).unwrap();
        Cli::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
    }

    #[test]
    fn a_file_gives_defaults_and_the_command_line_overrides_them() {
        let file = "verbose = true\n[serve]\nlisten = [\"127.0.0.1:1\", \"[::1]:2\"]\nlimit-rate = \"1M\"\nallow-write = true\n";
        let cli = parsed(file, &["gridlane", "serve", "/tmp"]);
        let crate::args::Command::Serve(serve) = cli.command else { panic!() };
        assert!(cli.global.verbose && serve.allow_write);
        assert_eq!((serve.listen.len(), serve.limit_rate), (2, Some(1_000_000)));
        let cli = parsed(file, &["gridlane", "serve", "/tmp", "--limit-rate", "2M"]);
        let crate::args::Command::Serve(serve) = cli.command else { panic!() };
        assert_eq!(serve.limit_rate, Some(2_000_000));
    }

    #[test]
    fn commands_of_commands_have_tables_too() {
        let cli =
            parsed("[wan]\nname = \"lab\"\n[wan.up]\nbackend = \"netem\"\n", &["gridlane", "wan", "up", "x"]);
        let crate::args::Command::Wan(wan) = cli.command else { panic!() };
        let crate::wan::args::WanCommand::Up(up) = wan.command else { panic!() };
        assert_eq!((wan.name.as_str(), up.backend), ("lab", crate::wan::args::BackEndArg::Netem));
    }

    #[test]
    fn mistakes_in_a_file_are_named() {
        for (file, word) in [
            ("[fly]\n", "fly"),
            ("[wan.fly]\n", "fly"),
            ("[wan.up]\nspeed = 1\n", "speed"),
            ("[cp]\nspeed = 1\n", "speed"),
            ("wings = 2\n", "wings"),
            ("[cp]\nstreams = {}\n", "streams"),
            ("[cp\n", "unclosed table"),
            ("config = \"x\"\n", "config"),
        ] {
            let error = with_defaults(Cli::command(), file, OWN).unwrap_err();
            assert!(error.to_string().contains(word), "{file}: {error}");
            assert_eq!(error.kind().exit_code(), 2);
        }
    }

    #[test]
    fn mistakes_in_a_file_have_its_name_and_their_line() {
        for (text, expected) in [
            ("verbose = true\n\n[cp\n", 3),
            ("verbose = true\n[fly]\n", 2),
            ("[cp]\nforce = true\nspeed = 1\n", 3),
            ("[cp]\nforce = true\nstreams = 1000\n", 3),
            ("# of a server\n[serve]\nlisten = [\"127.0.0.1:1\",\n  \"nowhere\"]\n", 3),
            ("[serve]\nlimit-rate = \"fast\"\n", 2),
            ("[wan.up]\n\nbackend = \"slow\"\n", 3),
            ("[cp]\nstreams = {}\n", 2),
        ] {
            let error = file::placed(
                with_defaults(Cli::command(), text, OWN).unwrap_err(),
                text,
                Path::new("/etc/g.toml"),
            );
            let place = format!("/etc/g.toml, line {expected}");
            assert_eq!(error.endpoint_text(), Some(place.as_str()), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
