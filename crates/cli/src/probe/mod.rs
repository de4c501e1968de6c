//! `gridlane probe`.

pub(crate) mod args;
mod chosen;
mod table;

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use gridlane_client::events::{Failure, ProbeCounts, ProbeLine, ProbeSummary};
use gridlane_client::probe::{
    Ability, Criteria, Group, Manner, Outcome, Part, ProbeObserver, ProbeRequest, Rank, Report, Site,
    SiteList, Step, Untried, Why, by_cause, choose, probe,
};
use gridlane_client::{TreePath, WholeFile, failure_of};
use gridlane_core::limits::PROBE_LIST_BYTES_MAX;
use gridlane_core::text::printable;
use gridlane_core::{Error, ErrorKind, Fault, Result};

use crate::args::{Global, Progress};
use crate::connect::connect_to;
use crate::cp::stop_signal;
use crate::output::{FailedEvent, Output, columns, exit_code, print_line, tell, to_stdout};
use crate::progress::Canvas;
use crate::words::{self, CommandLine};

use args::{AbilityArg, ProbeArgs};

pub(crate) async fn run(args: &ProbeArgs, global: &Global, output: &Output) -> Result<ExitCode> {
    check(args)?;
    let sites = sites(args)?;
    let manner = manner(args)?;
    // Where it cannot be written, that is known before any server is asked.
    let errors_file = args.errors.as_deref().map(WholeFile::create).transpose()?;
    let urls: Vec<_> =
        sites.iter().flat_map(|site| &site.endpoints).filter_map(|endpoint| endpoint.url.clone()).collect();
    let client = connect_to(&urls, &args.credentials, global, false)?.client;
    let request = ProbeRequest {
        sites: sites.clone(),
        manner,
        parallel: args.parallel.into(),
        parallel_rates: args.parallel_rates.into(),
    };
    let begun = Instant::now();
    let stop = stop_signal()?;
    let mut telling =
        Telling { sites: &sites, json: output.json, canvas: Canvas::new(Progress::Auto, output) };
    let outcome = probe(request, client, &mut telling, stop).await;
    telling.canvas.clear();
    let reports = outcome?;
    let took = begun.elapsed();
    let groups = by_cause(&reports);
    // What was found out is shown all the same.
    let errors_written = errors_file.map_or(Ok(()), |file| write_errors(file, &groups, output.json));
    let columns = columns();
    if !output.json && !output.quiet {
        to_stdout(format_args!("{}", table::table(&sites, &reports, columns)));
        let credentials = table::credentials(&sites, &reports, columns);
        let causes = table::causes(&sites, &groups, columns, output.verbose);
        for part in [credentials, causes].iter().filter(|part| !part.is_empty()) {
            to_stdout(format_args!("\n{part}"));
        }
    }
    for left in reports.iter().flat_map(|report| &report.left) {
        let what = if left.is_certain { "left at the server" } else { "perhaps left at the server" };
        tell!("gridlane: {what}: {}: {}", left.url, left.error.message());
    }
    let is_stopped = reports.iter().any(is_stopped);
    let error = match args.choose {
        // What is not known yet cannot be chosen from.
        Some(_) if is_stopped => None,
        Some(count) => choice(&sites, &reports, &criteria(args, count as usize), output),
        None => None,
    };
    let counts = ProbeCounts::of(sites.len(), &reports);
    if output.json {
        let error = error.as_ref().map(|error| Failure::new(error, &CommandLine));
        let summary = ProbeSummary { counts, seconds: took.as_secs_f64(), error };
        print_line(&mut std::io::stdout().lock(), &ProbeLine::Summary(summary));
    } else if !output.quiet {
        to_stdout(format_args!("\n{}", table::summary(&counts, took)));
    }
    let kind = match (is_stopped, error, args.choose) {
        (true, ..) => Some(ErrorKind::Interrupted),
        (false, Some(error), _) => {
            output.failed(FailedEvent::Command, &error, false);
            Some(error.kind())
        }
        // The choice is what was asked for.
        (false, None, Some(_)) => None,
        (false, None, None) => {
            let firsts: Vec<Error> =
                reports.iter().filter_map(|report| Some(report.failures().next()?.1.clone())).collect();
            failure_of(&firsts, reports.len())
        }
    };
    errors_written.map(|()| exit_code(kind))
}

/// Options that contradict each other.
fn check(args: &ProbeArgs) -> Result<()> {
    let changes = |ability: &AbilityArg| matches!(ability, AbilityArg::Write | AbilityArg::Delete);
    if !args.write && args.require.iter().any(changes) {
        let message = "what was not tried cannot be required";
        let error = Error::new(ErrorKind::Usage, message).fault(Fault::Caller);
        return Err(error.hint("with --write it is tried"));
    }
    Ok(())
}

/// The sites of the command line and of the file.
fn sites(args: &ProbeArgs) -> Result<Vec<Site>> {
    let mut list = SiteList::default();
    args.endpoints.iter().try_for_each(|line| list.add(line))?;
    if let Some(path) = &args.from {
        let (text, name) = read_list(path)?;
        for (number, line) in text.lines().enumerate() {
            list.add(line).map_err(|error| error.endpoint(format!("{name}, line {}", number + 1)))?;
        }
    }
    let sites = list.over(&args.protocols)?;
    match sites.is_empty() {
        true => Err(Error::new(ErrorKind::Usage, "there is no endpoint in the list").fault(Fault::Caller)),
        false => Ok(sites),
    }
}

fn read_list(path: &Path) -> Result<(String, String)> {
    let (from, name): (Box<dyn std::io::Read>, String) = match path == Path::new("-") {
        true => (Box::new(std::io::stdin()), "standard input".to_owned()),
        false => {
            let name = path.display().to_string();
            let file = std::fs::File::open(path)
                .map_err(|cause| Error::local_io("cannot open it", &cause).endpoint(&name))?;
            (Box::new(file), name)
        }
    };
    let mut text = String::new();
    let read = from.take(PROBE_LIST_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|cause| Error::local_io("cannot read it", &cause).endpoint(&name))?;
    if text.len() as u64 > PROBE_LIST_BYTES_MAX {
        let message = format!("the list has more than {PROBE_LIST_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(name));
    }
    Ok((text, name))
}

fn manner(args: &ProbeArgs) -> Result<Manner> {
    let file = args.file.as_ref().map(|name| TreePath::parse(name.as_bytes())).transpose()?;
    Ok(Manner {
        writes: args.write,
        file,
        rate_bytes: args.size,
        step_max: Duration::from_secs_f64(args.timeout),
        endpoint_max: Duration::from_secs_f64(args.endpoint_timeout),
    })
}

fn criteria(args: &ProbeArgs, count: usize) -> Criteria {
    let usual = match args.write {
        true => vec![Ability::List, Ability::Read, Ability::Write, Ability::Delete],
        false => vec![Ability::List, Ability::Read],
    };
    let require: Vec<Ability> = args.require.iter().map(|ability| (*ability).into()).collect();
    Criteria {
        count,
        protocols: args.protocols.iter().map(|wished| wished.protocol.clone()).collect(),
        require: if require.is_empty() { usual } else { require },
        round_trip_max: args.max_rtt.map(|ms| Duration::from_secs_f64(ms / 1e3)),
        rate_min_bytes_per_s: args.min_rate,
        apart: args.apart.map(Into::into),
        by: args.by.map_or(Rank::Rate, Into::into),
    }
}

/// Chooses, and tells what was chosen. An error says that it is too few.
fn choice(sites: &[Site], reports: &[Report], criteria: &Criteria, output: &Output) -> Option<Error> {
    let choice = choose(sites, reports, criteria);
    if output.json {
        let left = chosen::criteria_left(criteria, &choice);
        let why = |why: &Why| chosen::why(sites, reports, criteria, why);
        let line = ProbeLine::choice((sites, reports), (&choice, criteria.count), why, left);
        print_line(&mut std::io::stdout().lock(), &line);
    } else {
        // It was asked for: --quiet leaves it.
        to_stdout(format_args!("\n{}", chosen::text(sites, reports, criteria, &choice)));
    }
    chosen::too_few(sites, criteria, &choice)
}

fn is_stopped(report: &Report) -> bool {
    let stopped = |step: &Step| matches!(report.outcome(*step), Outcome::Untried(Untried::Stopped));
    Step::ALL.iter().any(stopped)
}

/// Tells how far it is, and in JSON what is known of each endpoint.
struct Telling<'a> {
    sites: &'a [Site],
    json: bool,
    canvas: Canvas,
}

impl ProbeObserver for Telling<'_> {
    fn progress(&mut self, part: Part, done: usize, of: usize) {
        let total = || match part {
            Part::Questions => format!("{done} of {of} endpoints are probed"),
            Part::Rates => format!("{done} of {of} rates are measured"),
        };
        self.canvas.draw(total, |_| Vec::new());
    }

    fn done(&mut self, report: &Report) {
        if self.json {
            let line = ProbeLine::endpoint(self.sites, report, &CommandLine);
            print_line(&mut std::io::stdout().lock(), &line);
        }
    }
}

/// Writes the failures by their causes.
fn write_errors(mut file: WholeFile, groups: &[Group<'_>], json: bool) -> Result<()> {
    if json {
        for group in groups {
            let mut line = Vec::new();
            print_line(&mut line, &ProbeLine::cause(group, &CommandLine));
            file.write(&line)?;
        }
        return file.finish();
    }
    let failures: usize = groups.iter().map(|group| group.failures.len()).sum();
    let now = gridlane_dav::timestamp::format(SystemTime::now());
    file.write(
        format!("# gridlane probe, {now}: {failures} failures, {} causes\n", groups.len()).as_bytes(),
    )?;
    for group in groups {
        let title = format!("{} × {}", group.failures.len(), group.cause);
        file.write(format!("\n{}\n", printable(&title)).as_bytes())?;
        for (report, error) in &group.failures {
            let (url, error) =
                (printable(&report.endpoint.shown), printable(&words::error(error).to_string()));
            file.write(format!("    {url}\n        {error}\n").as_bytes())?;
        }
    }
    file.finish()
}
