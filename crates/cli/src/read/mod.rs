//! `gridlane read`: recorded reads, replayed; and the ranges of `gridlane cat`.

pub(crate) mod args;
mod table;

use std::fs::File;
use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use gridlane_client::Session;
use gridlane_client::events::{ReadLine, ReadRecord, ReadRun};
use gridlane_client::reading::{Trace, prices, replay};
use gridlane_core::limits::{IO_BYTES, TRACE_BYTES_MAX};
use gridlane_core::{ByteRange, ChecksumKind, Error, ErrorKind, Fault, Hasher, Result, Url};
use gridlane_dav::RangeList;
use gridlane_engine::reading::{Policy, ReadOptions, RemoteFile, Settings};
use gridlane_peer::Client;

use crate::args::Global;
use crate::connect::connect_to;
use crate::files::parse;
use crate::output::{Output, print_line, to_stdout, write_bytes};
use args::{CatArgs, ReadArgs};

/// Time that the disk of a cache has to take the last of what was read.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// Ranges that are asked for ahead of what is written.
const AHEAD_BYTES: u64 = 16 * IO_BYTES as u64;

pub(crate) async fn run(args: &ReadArgs, global: &Global, output: &Output) -> Result<ExitCode> {
    let urls = args.urls.iter().map(|text| parse(text)).collect::<Result<Vec<Url>>>()?;
    let trace = Trace::parse(&text(args)?)?;
    let mut runs = Vec::new();
    let mut path = None;
    let policies = args.policy.iter().flat_map(|policies| policies.0.iter().copied());
    for policy in policies {
        // Connections of one run would be warm in the next.
        let session = connect_to(&urls, &args.credentials, global, false)?;
        let options = ReadOptions { cache: args.cache.open(&session.user)?, ..options(args, policy) };
        let run = measure(&urls, session.client, &trace, options, args.checksum).await?;
        path = path.or(Some((run.path, run.line.record.size_bytes)));
        if output.json {
            print_line(&mut std::io::stdout().lock(), &ReadLine::Run(Box::new(run.line)));
        } else {
            if output.verbose {
                to_stdout(format_args!("{}\n\n", run.line.record.explain));
            }
            runs.push(run.line);
        }
    }
    let Some((path, size_bytes)) = path else { return Ok(ExitCode::SUCCESS) };
    let prices = prices(&trace, size_bytes, &path);
    if output.json {
        print_line(&mut std::io::stdout().lock(), &ReadLine::prices(&trace, size_bytes, &path, &prices));
    } else {
        to_stdout(format_args!("{}", table::table(&trace, size_bytes, &path, &prices, &runs)));
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of the trace.
fn text(args: &ReadArgs) -> Result<String> {
    let read = |from: &mut dyn std::io::Read| {
        let mut text = String::new();
        from.take(TRACE_BYTES_MAX + 1).read_to_string(&mut text).map(|_| text)
    };
    let text = match args.trace.as_os_str() == "-" {
        true => read(&mut std::io::stdin().lock()),
        false => File::open(&args.trace).and_then(|mut file| read(&mut file)),
    };
    let text = text.map_err(|cause| {
        Error::local_io("cannot read the trace", &cause).endpoint(args.trace.display().to_string())
    })?;
    if text.len() as u64 > TRACE_BYTES_MAX {
        let message = format!("the trace has more than {TRACE_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller));
    }
    Ok(text)
}

fn options(args: &ReadArgs, policy: Policy) -> ReadOptions {
    let settings = Settings {
        policy,
        budget: args.budget,
        memory_bytes: args.memory,
        lanes: usize::from(args.lanes),
        patience: Duration::from_secs_f64(args.timeout),
        ..Settings::default()
    };
    ReadOptions { settings, ..ReadOptions::default() }
}

struct Run {
    line: ReadRun,
    path: gridlane_engine::reading::Path,
}

/// Opens the file and replays the trace.
async fn measure(
    urls: &[Url],
    client: Client,
    trace: &Trace,
    options: ReadOptions,
    has_checksum: bool,
) -> Result<Run> {
    let begun = std::time::Instant::now();
    let file = RemoteFile::open(urls.to_vec(), client, options).await?;
    let opened = begun.elapsed();
    if trace.end() > file.size_bytes() {
        let message =
            format!("the trace reads up to {}, and the file has {} bytes", trace.end(), file.size_bytes());
        let error = Error::new(ErrorKind::Usage, message).fault(Fault::Caller);
        return Err(error.hint("the trace is of another file").endpoint(&urls[0]));
    }
    let mut hasher = has_checksum.then(|| Hasher::new(ChecksumKind::Adler32));
    let took = replay(&file, trace, hasher.as_mut()).await?;
    file.settle(SETTLE_MAX).await;
    let path = file.path();
    let mut line = ReadRun::new(trace, ReadRecord::of(&file), opened, opened + took);
    line.adler32 = hasher.map(|hasher| hasher.finish().hex());
    Ok(Run { line, path })
}

/// Writes the ranges of a file, one behind the other.
pub(crate) async fn cat(args: &CatArgs, session: Session, url: Url) -> Result<ExitCode> {
    let cache = args.cache.open(&session.user)?;
    let options = ReadOptions { skips_proof: true, cache, ..ReadOptions::default() };
    let file = RemoteFile::open(vec![url.clone()], session.client, options).await?;
    let size_bytes = file.size_bytes();
    let ranges = args.range.iter().flat_map(RangeList::specs);
    let mut wanted = Vec::new();
    for spec in ranges {
        let range = spec.resolve(size_bytes).ok_or_else(|| {
            let message = format!(
                "the file has {size_bytes} bytes, and none in the range {}",
                spec.to_string().trim_start_matches("bytes=")
            );
            Error::new(ErrorKind::Usage, message).fault(Fault::Caller).endpoint(&url)
        })?;
        wanted.push(range);
    }
    let mut rest = wanted.into_iter().flat_map(in_parts).peekable();
    while rest.peek().is_some() {
        // As many as are brought together: all small ones, and a part of a large one.
        let (mut call, mut bytes) = (Vec::new(), 0);
        while let Some(part) = rest.next_if(|part| bytes == 0 || bytes + part.len() <= AHEAD_BYTES) {
            bytes += part.len();
            call.push(part);
        }
        for bytes in file.read(&call, None).all().await? {
            if !write_bytes(&bytes)? {
                // Nothing takes more of it.
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    file.settle(SETTLE_MAX).await;
    Ok(ExitCode::SUCCESS)
}

/// A range in parts that are read at once.
fn in_parts(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let step = IO_BYTES as u64;
    (range.start()..range.end())
        .step_by(step as usize)
        .map(move |start| ByteRange::at(start, step).intersection(range))
}
