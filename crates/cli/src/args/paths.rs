//! `SRC... DST`, with options anywhere between them: one argument for clap, which would end the sources at the
//! first option otherwise.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

const PATHS: &str = "paths";

/// Sources and a target.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// One or more.
    pub(crate) source: Vec<String>,
    pub(crate) target: String,
}

impl Args for Paths {
    fn augment_args(command: Command) -> Command {
        let paths = Arg::new(PATHS)
            .value_name("PATH")
            .required(true)
            .num_args(1..)
            .action(ArgAction::Append)
            .add(super::remote())
            .help("SRC: where the bytes come from; at the end DST: where they go");
        command.override_usage("gridlane cp [OPTIONS] <SRC>... <DST>").arg(paths)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Paths {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Paths, clap::Error> {
        let mut source: Vec<String> = matches.get_many(PATHS).into_iter().flatten().cloned().collect();
        match source.pop() {
            Some(target) if !source.is_empty() => Ok(Paths { source, target }),
            _ => {
                let message = "a source and a target are needed: gridlane cp [OPTIONS] <SRC>... <DST>\n";
                Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message))
            }
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Paths::from_arg_matches(matches)?;
        Ok(())
    }
}
