//! `ls`, `stat`, `cat`, `mkdir`, `mv`, `rm`, `df`, `checksum`.

use std::future::Future;
use std::os::fd::AsFd;
use std::process::ExitCode;

use gridlane_client::events::{AnswerLine, EntryLine};
use gridlane_client::{Entry, EntryKind, Lister, Walk, WalkObserver, failure_of, walk};
use gridlane_core::units::format_bytes;
use gridlane_core::{Error, ErrorKind, Fault, Result, Url};

use crate::args::{ChecksumArgs, DfArgs, Global, LsArgs, MkdirArgs, MvArgs, RmArgs, UrlArgs};
use crate::connect::{connect, connect_saying};
use crate::output::{FailedEvent, Output, exit_code, print, print_line, printable, write};
use crate::read::args::CatArgs;

pub(crate) async fn ls(args: &LsArgs, global: &Global) -> Result<ExitCode> {
    let url = parse(&args.url)?;
    let lister = Lister::new(connect([&args.url], &args.credentials, global)?.client);
    // People get names in order.
    let how = Walk { is_recursive: args.recursive, is_sorted: !global.json };
    let failures = walk(&lister, &url, how, &mut List { args, global }).await?;
    Ok(exit_code((failures > 0).then_some(ErrorKind::Partial)))
}

/// Prints what `ls` finds.
struct List<'a> {
    args: &'a LsArgs,
    global: &'a Global,
}

impl WalkObserver for List<'_> {
    fn entries(&mut self, entries: &[Entry]) -> Result<bool> {
        let mut out = Vec::new();
        entries.iter().for_each(|entry| show(&mut out, entry, self.args, self.global));
        write(&out)
    }

    fn failed(&mut self, error: &Error) {
        Output::new(self.global).failed(FailedEvent::Command, error, false);
    }
}

fn show(out: &mut Vec<u8>, entry: &Entry, args: &LsArgs, global: &Global) {
    if global.json {
        return print_line(out, &AnswerLine::Entry(EntryLine::new(entry, None)));
    }
    if args.long {
        let size = match (entry.size_bytes, args.human_readable) {
            (None, _) => "-".to_owned(),
            (Some(bytes), true) => format_bytes(bytes),
            (Some(bytes), false) => bytes.to_string(),
        };
        let width = if args.human_readable { 8 } else { 15 };
        let modified = entry.modified.map_or("-".to_owned(), httpdate::fmt_http_date);
        out.extend_from_slice(format!("{size:>width$}  {modified:<29}  ").as_bytes());
    }
    out.extend(printable(&entry.name).as_bytes());
    out.extend_from_slice(if entry.kind == EntryKind::Directory { b"/\n" } else { b"\n" });
}

pub(crate) async fn stat(args: &UrlArgs, global: &Global) -> Result<ExitCode> {
    let url = parse(&args.url)?;
    let client = connect([&args.url], &args.credentials, global)?.client;
    let found = gridlane_client::stat(&client, &url).await?;
    let entry = &found.entry;
    let mut out = Vec::new();
    if global.json {
        print_line(&mut out, &AnswerLine::Entry(EntryLine::new(entry, found.etag.as_deref())));
        return print(&out);
    }
    let mut line = |name: &str, text: String| {
        out.extend_from_slice(format!("{name:<9} {text}\n").as_bytes());
    };
    line("name:", url.to_string());
    line("kind:", entry.kind.name().into());
    if let Some(bytes) = entry.size_bytes {
        line("size:", format!("{bytes} ({})", gridlane_core::units::format_bytes(bytes)));
    }
    if let Some(modified) = entry.modified {
        line("modified:", httpdate::fmt_http_date(modified));
    }
    if let Some(etag) = &found.etag {
        line("etag:", printable(etag.as_bytes()));
    }
    print(&out)
}

pub(crate) async fn cat(args: &CatArgs, global: &Global) -> Result<ExitCode> {
    let url = parse(&args.url)?;
    let session = connect_saying([&args.url], &args.credentials, global, true)?;
    if !args.range.is_empty() {
        return crate::read::cat(args, session, url).await;
    }
    if args.cache.cache.is_some() {
        let error = Error::new(ErrorKind::Usage, "only ranges are kept in a cache").fault(Fault::Caller);
        return Err(error.hint("add --range 0- to read all of the file that way"));
    }
    let client = session.client;
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    let stdout = stdout.map_err(|cause| Error::local_io("cannot use standard output", &cause))?;
    gridlane_client::cat(&client, &url, stdout.into()).await?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn mkdir(args: &MkdirArgs, global: &Global) -> Result<ExitCode> {
    let client = connect(&args.urls, &args.credentials, global)?.client;
    let (client, parents) = (&client, args.parents);
    for_each(&args.urls, global, |url| async move {
        gridlane_client::make_directory(client, &url, parents).await?;
        Ok(AnswerLine::Made { url: url.to_string() })
    })
    .await
}

pub(crate) async fn mv(args: &MvArgs, global: &Global) -> Result<ExitCode> {
    let client = connect(&args.urls, &args.credentials, global)?.client;
    let Some((to, from)) = args.urls.split_last() else { return Ok(ExitCode::SUCCESS) };
    let target = parse(to)?;
    if from.len() > 1 && !target.is_directory_form() {
        let message = format!("several things can only be moved into a directory: write {to}/");
        return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller));
    }
    let (client, target, force) = (&client, &target, args.force);
    for_each(from, global, |url| async move {
        let now = gridlane_client::rename(client, &url, target, force).await?;
        Ok(AnswerLine::Moved { url: url.to_string(), to: now.to_string() })
    })
    .await
}

pub(crate) async fn rm(args: &RmArgs, global: &Global) -> Result<ExitCode> {
    let client = connect(&args.urls, &args.credentials, global)?.client;
    let (client, recursive) = (&client, args.recursive);
    for_each(&args.urls, global, |url| async move {
        match recursive {
            true => gridlane_client::remove_tree(client, &url).await?,
            false => gridlane_client::remove(client, &url).await?,
        }
        Ok(AnswerLine::Removed { url: url.to_string() })
    })
    .await
}

/// The room as a table.
pub(crate) async fn df(args: &DfArgs, global: &Global) -> Result<ExitCode> {
    let client = connect(&args.urls, &args.credentials, global)?.client;
    if !global.json {
        print(format!("{:>12} {:>12} {:>5}  {}\n", "used", "available", "use", "URL").as_bytes())?;
    }
    let (client, json) = (&client, global.json);
    for_each(&args.urls, global, |url| async move {
        let space = gridlane_client::space(client, &url).await?;
        if !json {
            let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), format_bytes);
            let share =
                space.used_bytes.zip(space.available_bytes).map_or("-".to_owned(), |(used, available)| {
                    format!("{:.0}%", 100.0 * used as f64 / (used as f64 + available as f64).max(1.0))
                });
            let line = format!(
                "{:>12} {:>12} {share:>5}  {url}\n",
                size(space.used_bytes),
                size(space.available_bytes)
            );
            print(line.as_bytes())?;
        }
        Ok(AnswerLine::space(&url, &space))
    })
    .await
}

/// Does the same with each; one that fails does not keep the others from being done. Fails with what all of them
/// failed with, or tells that some did.
async fn for_each<F: Future<Output = Result<AnswerLine>> + Send>(
    urls: &[String],
    global: &Global,
    work: impl Fn(Url) -> F,
) -> Result<ExitCode> {
    let mut failures: Vec<Error> = Vec::new();
    let output = Output::new(global);
    for text in urls {
        let outcome = match parse(text) {
            Ok(url) => work(url).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(line) if global.json => {
                let mut out = Vec::new();
                print_line(&mut out, &line);
                print(&out)?;
            }
            Ok(_) => {}
            Err(error) if urls.len() == 1 => return Err(error),
            Err(error) => {
                output.failed(FailedEvent::Command, &error, false);
                failures.push(error);
            }
        }
    }
    Ok(exit_code(failure_of(&failures, urls.len())))
}

pub(crate) async fn checksum(args: &ChecksumArgs, global: &Global) -> Result<ExitCode> {
    let url = parse(&args.url)?;
    let client = connect([&args.url], &args.credentials, global)?.client;
    let checksum = gridlane_client::checksum(&client, &url, args.kind).await?;
    let mut out = Vec::new();
    if global.json {
        let line = AnswerLine::Checksum { url: url.to_string(), checksum: checksum.to_string() };
        print_line(&mut out, &line);
    } else {
        out.extend_from_slice(format!("{checksum}  {url}\n").as_bytes());
    }
    print(&out)
}

/// The text that was typed as a URL or a path.
pub(crate) fn parse(text: &str) -> Result<Url> {
    gridlane_client::typed_url(text)
}
