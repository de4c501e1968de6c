//! `gridlane cp`.

mod tree;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use gridlane_client::credentials::Lasting;
use gridlane_client::third_party::{Mode, ThirdParty, Wish};
use gridlane_client::{Copies, CopyRequest, Existing, Lister, Session, current_dir};
use gridlane_core::text::is_unprintable;
use gridlane_core::{Error, ErrorKind, Fault, Result, Scheme, Url};
use gridlane_engine::Options;
use gridlane_peer::Client;
use gridlane_share::RateLimit;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{CpArgs, Global, Preserve, Tpc, TpcMode};
use crate::connect::connect_saying;
use crate::events::JsonEvents;
use crate::files::parse;
use crate::output::{Output, exit_code};
use crate::progress::Screen;

pub(crate) async fn run(args: &CpArgs, global: &Global, output: &Output) -> Result<ExitCode> {
    check(args)?;
    let typed = args.paths.source.iter().chain(&args.mirror).chain([&args.paths.target]);
    let Session { client, lasting, .. } =
        connect_saying(typed, &args.credentials, global, args.paths.target == "-")?;
    let client = gridlane_client::patient(client, &options(args));
    let lister = Lister::new(client.clone());
    let is_many = args.paths.source.len() > 1 || args.files_from.is_some();
    match is_many || args.recursive && lister.is_directory(&parse(&args.paths.source[0])?).await? {
        true => Box::pin(tree::run(args, lister, lasting, output)).await,
        false => Box::pin(one(args, client, lasting, output)).await,
    }
}

/// Options that contradict each other, or are about trees where there is none.
fn check(args: &CpArgs) -> Result<()> {
    let wrong = |message: &str, hint: &str| {
        Err(Error::new(ErrorKind::Usage, message).fault(Fault::Caller).hint(hint))
    };
    let walks = args.recursive || args.files_from.is_some();
    let lists = args.files_from.is_some() || args.failed_to.is_some();
    if args.is_tree() && args.paths.target == "-" {
        return wrong("several files cannot go to standard output", "name a directory");
    }
    if args.paths.source.len() > 1 && !args.mirror.is_empty() {
        return wrong("--mirror is about one source", "copy each source by itself");
    }
    if args.paths.source.len() > 1 && lists {
        return wrong("--files-from and --failed-to are about one source", "copy each source by itself");
    }
    if args.failed_to.is_some() && !walks {
        return wrong("--failed-to is about trees", "give -r or --files-from as well");
    }
    if args.null && !lists {
        return wrong("-0 is about lists of names", "give --files-from or --failed-to as well");
    }
    if !args.filter.filter.is_empty() && !walks {
        return wrong("--include and --exclude are about trees", "give -r as well");
    }
    if args.is_tree() && matches!(&args.checksum, Some((_, Some(_)))) {
        return wrong("a checksum's value is about one file", "give its type only: --checksum adler32");
    }
    if args.tpc == Tpc::Never && args.tpc_mode != TpcMode::Auto {
        return wrong("--tpc-mode is about copies between servers", "leave out --tpc never");
    }
    if args.delegate && args.tpc == Tpc::Never {
        return wrong("--delegate is about copies between servers", "leave out --tpc never");
    }
    if args.tpc == Tpc::Only {
        // A metalink of this machine may name files of servers.
        let sources = args.paths.source.iter().filter(|source| args.no_metalink || !is_metalink_name(source));
        let mut ends = sources.chain(&args.mirror).chain([&args.paths.target]);
        let is_here = |text: &&String| parse(text).is_ok_and(|url| url.scheme() == Scheme::File);
        if let Some(here) = ends.find(is_here) {
            return wrong(
                &format!("--tpc only is about copies between servers, and {here} is on this machine"),
                "leave it out",
            );
        }
        if args.limit_rate.is_some() {
            return wrong("--limit-rate holds for bytes that pass here", "leave it out, or --tpc only");
        }
    }
    Ok(())
}

fn options(args: &CpArgs) -> Options {
    let given = args.timeout.map(Duration::from_secs_f64);
    let usual = Options::default();
    Options {
        checksum: args.checksum.clone(),
        require_verified: args.require_verified,
        follow_links: !args.no_links,
        streams: args.streams.map(usize::from),
        limit: args.limit_rate.map(RateLimit::new),
        patience: given.unwrap_or(usual.patience),
        upload_answer_max: given.unwrap_or(usual.upload_answer_max),
        ..usual
    }
}

fn existing(args: &CpArgs) -> Existing {
    match (args.update, args.force) {
        (true, _) => Existing::Update,
        (false, true) => Existing::Replace,
        (false, false) => Existing::Refuse,
    }
}

fn is_metalink_name(name: &str) -> bool {
    [".meta4", ".metalink"].iter().any(|end| name.ends_with(end))
}

fn wish(args: &CpArgs) -> Wish {
    Wish {
        third_party: match args.tpc {
            Tpc::Auto => ThirdParty::Auto,
            Tpc::Only => ThirdParty::Only,
            Tpc::Never => ThirdParty::Never,
        },
        mode: match args.tpc_mode {
            TpcMode::Auto => None,
            TpcMode::Pull => Some(Mode::Pull),
            TpcMode::Push => Some(Mode::Push),
        },
        delegates: args.delegate,
    }
}

/// Copies one file, or the files of a metalink.
async fn one(args: &CpArgs, client: Client, lasting: Option<Lasting>, output: &Output) -> Result<ExitCode> {
    let typed = args.paths.source.iter().chain(&args.mirror);
    let request = CopyRequest {
        sources: typed.map(|text| parse(text)).collect::<Result<_>>()?,
        target: args.paths.target.clone(),
        current_dir: current_dir()?,
        options: options(args),
        journal_keys: gridlane_client::journal_keys(),
        existing: existing(args),
        preserve_times: args.preserve == Some(Preserve::Times),
        dry_run: args.dry_run,
        wish: wish(args),
        takes_metalinks: !args.no_metalink,
        lasting,
    };
    // May wait for the reader of a pipe: before signals are ours, so that Ctrl-C ends it.
    let copies = Copies::plan(request, client).await?;
    let stop = stop_signal()?;
    let outcome = match output.json {
        true => copies.run(&mut JsonEvents::new(args.paths.target == "-", output), stop).await?,
        false => copies.run(&mut Screen::new(args.progress, output), stop).await?,
    };
    Ok(exit_code(outcome.failure()))
}

/// The command that was typed, as a shell reads it back.
pub(crate) fn typed_command() -> String {
    command_line(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()))
}

/// A command as a shell reads it back.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|word| {
        let word = without_secrets(&word);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        match &word {
            _ if !word.is_empty() && word.chars().all(plain) => word,
            // As bytes, in the form that most shells know (POSIX.1-2024, 2.2.4): what is not shown cannot be copied.
            _ if word.chars().any(is_unprintable) => {
                let quoted = |byte: u8| match byte {
                    b'\'' | b'\\' => format!("\\{}", char::from(byte)),
                    b' '..=b'~' => char::from(byte).to_string(),
                    other => format!("\\{other:03o}"),
                };
                format!("$'{}'", word.bytes().map(quoted).collect::<String>())
            }
            _ => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// An argument as it may stand in a log: a URL with a password or a signed query loses them.
fn without_secrets(arg: &str) -> String {
    // `--mirror=URL`: the URL alone is one.
    if let Some((option, value)) = arg.split_once('=').filter(|_| arg.starts_with("--")) {
        return format!("{option}={}", without_secrets(value));
    }
    match Url::parse_absolute(arg) {
        Ok(url) if url.credentials().is_some() || url.request_target().contains('?') => url.to_string(),
        _ => arg.to_owned(),
    }
}

/// Completes at the first SIGINT or SIGTERM; the second one ends the process at once.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()> + Send> {
    let listen = |kind| {
        signal(kind)
            .map_err(|cause| Error::new(ErrorKind::Other, format!("cannot listen to signals: {cause}")))
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let (first, stopped) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        let _ = first.send(());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(i32::from(ErrorKind::Interrupted.exit_code()));
    });
    Ok(async move {
        let _ = stopped.await;
    })
}
