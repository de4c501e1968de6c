//! `gridlane doctor`.

use std::process::ExitCode;

use gridlane_client::credentials::ThisMachine;
use gridlane_client::doctor::{Finding, Verdict, examine_endpoint, examine_machine, failure};
use gridlane_client::events::AnswerLine;
use gridlane_core::{Error, Result};

use crate::args::{DoctorArgs, Global};
use crate::files::parse;
use crate::output::{exit_code, print_line, to_stdout};
use crate::words::{self, CommandLine};

pub(crate) async fn run(args: &DoctorArgs, global: &Global) -> Result<ExitCode> {
    let trust = global.trust();
    let mut all = examine_machine(&trust, &args.credentials.wanted(), &ThisMachine);
    show("this machine", &all, global);
    let client = crate::connect::for_doctor(&args.urls, &args.credentials, &trust);
    for text in &args.urls {
        let url = parse(text)?;
        let findings = examine_endpoint(&client, &url).await;
        show(&url.to_string(), &findings, global);
        all.extend(findings);
    }
    Ok(exit_code(failure(&all).map(Error::kind)))
}

fn show(of: &str, findings: &[Finding], global: &Global) {
    let mut out = Vec::new();
    if !global.json && !global.quiet {
        out.extend_from_slice(format!("{of}\n").as_bytes());
    }
    for finding in findings {
        let verdict = finding.verdict.name();
        let (text, advice) = (words::answer(&finding.answer), finding.advice.as_ref().map(words::hint));
        if global.json {
            print_line(&mut out, &AnswerLine::check(of, finding, &CommandLine));
        } else if !global.quiet || finding.verdict == Verdict::Bad {
            out.extend_from_slice(format!("  {verdict:<4}  {:<18}  {}\n", finding.subject, text).as_bytes());
            if let Some(advice) = &advice {
                out.extend_from_slice(format!("{:28}{advice}\n", "").as_bytes());
            }
        }
    }
    to_stdout(format_args!("{}", String::from_utf8_lossy(&out)));
}
