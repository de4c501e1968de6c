//! Recorded access traces (`tests/traces/README.md`).

use gridlane_core::ByteRange;

/// The calls of a recorded job.
pub(crate) struct Trace {
    pub(crate) name: &'static str,
    pub(crate) size_bytes: u64,
    pub(crate) calls: Vec<Vec<ByteRange>>,
}

/// A NanoAOD file that was merged with itself 100 times.
const NANO_BYTES: u64 = 212_335_314;
/// Flights as Parquet.
const FLIGHTS_BYTES: u64 = 13_493_022;
/// Sea-surface temperature as NetCDF-4.
const OSTIA_BYTES: u64 = 1_713_012;

macro_rules! trace {
    ($name:literal, $size:expr) => {
        Trace {
            name: $name,
            size_bytes: $size,
            calls: calls(include_str!(concat!("../traces/", $name, ".csv"))),
        }
    };
}

/// All of them.
pub(crate) fn traces() -> Vec<Trace> {
    vec![
        trace!("root640_ttree_40br_defaultcache", NANO_BYTES),
        trace!("root640_ttree_40br_nocache_20kev", NANO_BYTES),
        trace!("root640_ioex10pct_trig20_defaultcache_20kev", NANO_BYTES),
        trace!("root640_ioex10pct_trig20_cache20MB_20kev", NANO_BYTES),
        trace!("root640_ioex30pct_trig20_roundrobin_defaultcache_20kev", NANO_BYTES),
        trace!("root640_ioex10pct_trig20_nocache_10kev", NANO_BYTES),
        trace!("uproot577_fsspec_40br", NANO_BYTES),
        trace!("uproot577_fsspec_iterate20k_40br", NANO_BYTES),
        trace!("pyarrow26_fsspec_readahead_2of5cols", FLIGHTS_BYTES),
        trace!("pyarrow26_fsspec_nocache_2of5cols", FLIGHTS_BYTES),
        trace!("xarray_h5netcdf_fsspec_nocache_1slice", OSTIA_BYTES),
    ]
}

/// Lines of `request,op,offset,length`; those of one request are one call.
fn calls(text: &str) -> Vec<Vec<ByteRange>> {
    let mut calls: Vec<(u64, Vec<ByteRange>)> = Vec::new();
    for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
        let mut fields = line.split(',');
        let mut number = || fields.next().expect("four fields");
        let (request, _, offset, length) = (number(), number(), number(), number());
        let parse = |text: &str| text.trim().parse::<u64>().expect("a number");
        let range = ByteRange::at(parse(offset), parse(length));
        match calls.last_mut() {
            Some((last, ranges)) if *last == parse(request) => ranges.push(range),
            _ => calls.push((parse(request), vec![range])),
        }
    }
    calls.into_iter().map(|(_, ranges)| ranges).collect()
}
