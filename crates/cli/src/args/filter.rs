//! `--include` and `--exclude`, whose order on the command line counts.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use gridlane_client::Filter;

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";

/// The patterns of a command line, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterArgs {
    pub(crate) filter: Filter,
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let option = |name, help, long_help: Option<&'static str>| {
            let arg =
                Arg::new(name).long(name).value_name("GLOB").action(ArgAction::Append).num_args(1).help(help);
            match long_help {
                Some(text) => arg.long_help(text),
                None => arg,
            }
        };
        command
            .arg(option(
                INCLUDE,
                "With -r: copy what matches; the first pattern that matches decides (repeatable)",
                Some(
                    "With -r: copy what matches (repeatable).\n\nThe first pattern that matches, of --include \
and --exclude in the order in which they are given, decides. What none matches is left out if the last one is \
an --include, and copied if it is an --exclude. `*.root` is about names in any directory; with a slash, \
`run1/*.root` and `/run1`, about paths from the root of the tree; `**` stands for any number of directories; \
`cache/` is about directories only. What matches a directory matches all that is in it. With patterns, only \
directories that files go to are made",
                ),
            ))
            .arg(option(EXCLUDE, "With -r: leave out what matches (repeatable, see --include)", None))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FilterArgs, clap::Error> {
        let mut rules: Vec<(usize, bool, &String)> = Vec::new();
        for (name, includes) in [(INCLUDE, true), (EXCLUDE, false)] {
            let places = matches.indices_of(name).into_iter().flatten();
            let patterns = matches.get_many::<String>(name).into_iter().flatten();
            rules.extend(places.zip(patterns).map(|(place, pattern)| (place, includes, pattern)));
        }
        rules.sort_by_key(|(place, ..)| *place);
        let mut filter = Filter::default();
        for (_, includes, pattern) in rules {
            filter.add(pattern, includes).map_err(|error| {
                clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n"))
            })?;
        }
        Ok(FilterArgs { filter })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = FilterArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
