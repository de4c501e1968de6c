//! Commands with and without files.

use super::*;

fn command() -> Command {
    let rate = || Arg::new("rate").long("rate").value_parser(clap::value_parser!(u64));
    let run = Command::new("run").arg(rate());
    Command::new("daemon").arg(Arg::new("loud").long("loud").action(ArgAction::SetTrue)).subcommand(run)
}

const OWN: OwnTables<'_> = OwnTables { lists: &["share"], tables: &["peer"] };

#[test]
fn what_is_typed_counts_before_the_file() {
    let text = "loud = true\n[run]\nrate = 5\n[[share]]\n[peer]\n";
    let command = with_defaults(command(), text, OWN).unwrap();
    let rate = |args: &[&str]| {
        let matches = command.clone().try_get_matches_from(args).unwrap();
        assert!(matches.get_flag("loud"));
        *matches.subcommand().unwrap().1.get_one::<u64>("rate").unwrap()
    };
    assert_eq!(rate(&["daemon", "run"]), 5);
    assert_eq!(rate(&["daemon", "run", "--rate", "7"]), 7);
}

#[test]
fn what_the_file_is_wrong_about_has_its_line() {
    for (text, line, word) in [
        ("loud = true\n[fly]\n", 2, "there is no command"),
        ("[run]\n\nspeed = 1\n", 3, "has no option"),
        ("[run]\nrate = \"fast\"\n", 2, "fast"),
        ("[[peer]]\n", 1, "no option"),
        ("[run.peer]\n", 1, "there is no command"),
    ] {
        let error = with_defaults(command(), text, OWN).unwrap_err();
        assert_eq!(error.endpoint_text(), Some(format!("line {line}").as_str()), "{text}: {error}");
        assert!(error.message().contains(word), "{text}: {error}");
    }
}

#[test]
fn the_file_is_named_before_a_command_is_read() {
    let named = |args: &[&str]| named_file(args.iter().map(OsString::from), "GRIDLANE_CONFIG_TEST_FILE");
    let path = || Some(PathBuf::from("f"));
    assert_eq!(named(&["daemon", "run", "--config", "f"]), path());
    assert_eq!(named(&["daemon", "--config=f", "run"]), path());
    assert_eq!(named(&["daemon", "--configure=f", "--", "--config", "f"]), None);
}
