//! Writes the seeds and words down as libFuzzer wants them: `corpus/NAME/…` and `NAME.dict`.

use std::fmt::Write as _;
use std::path::Path;

use gridlane_fuzz_targets::TARGETS;

fn main() -> std::io::Result<()> {
    let argument = std::env::args_os().nth(1);
    let Some(to) = argument.as_deref().map(Path::new) else {
        eprintln!("usage: gridlane-fuzz-targets DIRECTORY (that of cargo-fuzz: fuzz)");
        std::process::exit(2);
    };
    for target in TARGETS {
        let seeds = target.all_seeds();
        let corpus = to.join("corpus").join(target.name);
        std::fs::create_dir_all(&corpus)?;
        for (index, input) in seeds.inputs.iter().enumerate() {
            std::fs::write(corpus.join(format!("seed-{index:02}")), input)?;
        }
        let mut dictionary = String::new();
        for word in &seeds.words {
            let escaped: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            // Writing to a string does not fail.
            let _ = writeln!(dictionary, "\"{escaped}\"");
        }
        std::fs::write(to.join(format!("{}.dict", target.name)), dictionary)?;
    }
    Ok(())
}
