use super::*;
use crate::wan::args as wan;
use clap::{Command as Clap, CommandFactory};

#[test]
fn the_arguments_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn checksums_are_read_with_and_without_a_value() {
    assert_eq!(parse_wanted("MD5").unwrap(), (ChecksumKind::Md5, None));
    let (kind, value) = parse_wanted("adler32:1").unwrap();
    assert_eq!((kind, value.unwrap().hex()), (ChecksumKind::Adler32, "00000001".to_owned()));
    assert!(parse_wanted("sha256:zz").is_err());
}

/// A comment on a variant of `Command` replaces all that the comment on its options says.
#[test]
fn no_command_hides_what_is_said_where_its_options_are() {
    /// The names of a command, and what puts its options and their description into one.
    type Described = (&'static [&'static str], fn(Clap) -> Clap);
    let described: [Described; 19] = [
        (&["cp"], CpArgs::augment_args),
        (&["serve"], ServeArgs::augment_args),
        (&["ls"], LsArgs::augment_args),
        (&["cat"], crate::read::args::CatArgs::augment_args),
        (&["read"], crate::read::args::ReadArgs::augment_args),
        (&["mkdir"], MkdirArgs::augment_args),
        (&["mv"], MvArgs::augment_args),
        (&["rm"], RmArgs::augment_args),
        (&["checksum"], ChecksumArgs::augment_args),
        (&["df"], DfArgs::augment_args),
        (&["doctor"], DoctorArgs::augment_args),
        (&["probe"], crate::probe::args::ProbeArgs::augment_args),
        (&["completion"], CompletionArgs::augment_args),
        (&["man"], ManArgs::augment_args),
        (&["wan"], wan::WanArgs::augment_args),
        (&["wan", "up"], wan::UpArgs::augment_args),
        (&["wan", "set"], wan::SetArgs::augment_args),
        (&["wan", "exec"], wan::ExecArgs::augment_args),
        (&["wan", "check"], wan::CheckArgs::augment_args),
    ];
    let program = Cli::command();
    let text = |help: Option<&clap::builder::StyledStr>| help.map(ToString::to_string);
    for (names, options) in described {
        let command = names.iter().fold(&program, |command, name| {
            command.find_subcommand(name).unwrap_or_else(|| panic!("there is no command {names:?}"))
        });
        let own = options(Clap::new("options"));
        assert!(own.get_about().is_some(), "{names:?} is not described where its options are");
        assert_eq!(text(command.get_about()), text(own.get_about()), "{names:?}");
        assert_eq!(text(command.get_long_about()), text(own.get_long_about()), "{names:?}");
    }
}

#[test]
fn every_command_and_option_has_a_help_text() {
    fn look(command: &Clap) {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name} is not described");
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{} of {name} is not described", arg.get_id());
        }
        command.get_subcommands().for_each(look);
    }
    look(&Cli::command());
}

#[test]
fn long_help_tells_more_than_the_list_of_commands() {
    let mut program = Cli::command();
    for (name, words) in [
        ("cp", "the majority decides"),
        ("serve", "SIGHUP does it at once"),
        ("mv", "use `cp`, then `rm`"),
        ("doctor", "limits and buffers of the kernel"),
        ("read", "Each run opens the file anew"),
        ("probe", "what is, or may be, still there is named"),
        ("completion", "source <(gridlane completion bash)"),
        ("man", "man -l"),
        ("wan", "Nothing outside the namespaces changes"),
    ] {
        let command = program.find_subcommand_mut(name).unwrap();
        let help = command.render_long_help().to_string();
        let in_one_line = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(in_one_line.contains(words), "no {words:?} in the help of {name}:\n{help}");
    }
}
