//! `gridlane cp` of trees and of several files.

use std::process::ExitCode;

use gridlane_client::credentials::Lasting;
use gridlane_client::{
    FailedList, Lister, NameList, Roots, Separator, TreeReport, TreeSpec, copy_tree, current_dir,
    resolve_roots,
};
use gridlane_core::{Error, ErrorKind, Fault, Result};

use super::{command_line, existing, options, stop_signal, wish};
use crate::args::{CpArgs, Links, Preserve};
use crate::events::TreeJson;
use crate::files::parse;
use crate::output::{Output, exit_code, tell, to_stderr};
use crate::progress::tree::{TreeScreen, tree_summary_text};

pub(super) async fn run(
    args: &CpArgs,
    lister: Lister,
    lasting: Option<Lasting>,
    output: &Output,
) -> Result<ExitCode> {
    let recursive = args.recursive || args.files_from.is_some();
    let roots = resolve_roots(
        &lister,
        &args.paths.source,
        &args.mirror,
        &args.paths.target,
        &current_dir()?,
        recursive,
    )
    .await?;
    let separator = if args.null { Separator::Nul } else { Separator::Newline };
    let names = match &args.files_from {
        Some(_) if !roots.roots[0].is_directory => {
            return Err(Error::new(ErrorKind::Usage, "the names of --files-from are below a directory")
                .fault(Fault::Caller)
                .endpoint(parse(&args.paths.source[0])?));
        }
        Some(path) => Some(NameList::open(path, separator)?),
        None => None,
    };
    let failed = match &args.failed_to {
        Some(path) => Some(FailedList::create(path, separator)?),
        None => None,
    };
    let target = roots.target.clone();
    let target_name = target.url()?.to_string();
    let hint = continuing(args, &roots);
    let spec = TreeSpec {
        roots,
        names,
        filter: args.filter.filter.clone(),
        options: options(args),
        journal_keys: gridlane_client::journal_keys(),
        existing: existing(args),
        preserve_times: args.preserve == Some(Preserve::Times),
        follow_links: args.links == Links::Follow,
        continue_on_error: args.continue_on_error,
        dry_run: args.dry_run,
        wish: wish(args),
        parallel: args.parallel.into(),
        lasting,
        failed,
    };
    let stop = stop_signal()?;
    if output.json {
        let mut events = TreeJson::new(&target);
        let sources: Vec<String> = args
            .paths
            .source
            .iter()
            .chain(&args.mirror)
            .map(|text| parse(text).map(|url| url.to_string()))
            .collect::<Result<_>>()?;
        if !args.dry_run {
            events.plan(sources, &target_name, spec.parallel);
        }
        let report = copy_tree(spec, lister, &mut events, stop).await;
        let outcome = report.outcome();
        events.end(&report, args.dry_run, outcome.as_ref().err());
        return Ok(exit_code(outcome.err().as_ref().map(Error::kind)));
    }
    let mut screen = TreeScreen::new(&target_name, args.progress, output);
    let report = copy_tree(spec, lister, &mut screen, stop).await;
    screen.clear();
    if !output.quiet {
        to_stderr(format_args!("{}", tree_summary_text(&report, &target_name, args.dry_run)));
    }
    Ok(end(&report, &hint, args, output))
}

/// Says how the whole ended, and how to go on.
fn end(report: &TreeReport, hint: &str, args: &CpArgs, output: &Output) -> ExitCode {
    let Err(error) = report.outcome() else { return ExitCode::SUCCESS };
    // Single failures have been told already.
    if report.fatal.is_some() || report.is_interrupted {
        output.error(&error);
    }
    let is_worth_it = report.is_interrupted
        || report.done_files > 0
        || error.is_retryable()
        || report.common_kind == Some(ErrorKind::Precondition);
    if is_worth_it && !args.dry_run {
        tell!("gridlane: this continues with what is missing: {hint}");
    }
    exit_code(Some(error.kind()))
}

/// The command that goes on where this one ended.
///
/// It is the same with `--update`; except that a tree which became a new `DST` goes into it the second
/// time, when it is there, unless the source ends with a slash.
fn continuing(args: &CpArgs, roots: &Roots) -> String {
    let becomes_target = roots.roots.len() == 1 && roots.roots[0].prefix.is_root();
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let source = &args.paths.source[0];
    if becomes_target
        && !source.ends_with('/')
        && let Some(word) = words.iter_mut().skip(1).find(|word| *word == source)
    {
        word.push('/');
    }
    let is_given = args.update || args.force;
    if !is_given && let Some(at) = words.iter().position(|word| word == "cp") {
        words.insert(at + 1, "--update".into());
    }
    command_line(words.into_iter())
}
