#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (gridlane_fuzz_targets::target("submission").run)(data));
