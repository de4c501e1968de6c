"""Files in the places of the real ones, for a clone that has none beside it: made with the readers' own libraries.

They have the names, trees, columns and variables that the tests look at, not the sizes: `GRIDLANE_DATA` names the real ones.
"""

from __future__ import annotations

import json
import pathlib

import numpy


def make(directory: pathlib.Path) -> pathlib.Path:
    """Makes all of them below a directory, in a second or two."""
    for part in (trees, ntuple, tables, grids, datasets, seismograms):
        part(directory)
    return directory


def trees(directory: pathlib.Path) -> None:
    """ROOT's TTree: many branches, few branches, and many baskets; bytes that nobody compresses."""
    import awkward
    import uproot

    place = directory / "root"
    place.mkdir()
    random = numpy.random.default_rng(1)
    for name, tree, branches, entries in [
        ("uproot-issue121.root", "Events", ["MET_pt"] + [f"f{number}" for number in range(90)], 40),
        ("uproot-HZZ.root", "events", ["MET_px", "MET_py"] + [f"f{number}" for number in range(18)], 2421),
        (
            "uproot-Zmumu.root",
            "events",
            ["px1", "py1", "pz1", "E1"] + [f"f{number}" for number in range(9)],
            2304,
        ),
    ]:
        with uproot.recreate(place / name) as file:
            # Assigned to, it would be an RNTuple.
            made = file.mktree(tree, dict.fromkeys(branches, "f8"))
            made.extend({branch: random.normal(size=entries) for branch in branches})
    counts = random.integers(0, 4, size=1000)
    momenta = awkward.unflatten(random.normal(30, 9, size=counts.sum()).astype("f4"), counts)
    with uproot.recreate(place / "NanoAODv5_sample.root") as file:
        plain = {f"f{number}": random.normal(size=1000) for number in range(90)}
        muons = awkward.zip({"pt": momenta})
        made = file.mktree("Events", {"Muon": muons.type.content, **dict.fromkeys(plain, "f8")})
        made.extend({"Muon": muons, **plain})
    with uproot.recreate(place / "uproot-issue412.root") as file:
        tree = file.mktree("test", {"a": "f8", "b": "f8"})
        for _ in range(100):
            tree.extend({"a": random.normal(size=10_000), "b": random.normal(size=10_000)})
    (place / "km3net_muon_cc_events.root").write_bytes(b"root" + random.bytes(9_200_000))


def ntuple(directory: pathlib.Path) -> None:
    """ROOT's RNTuple."""
    import uproot

    (directory / "rntuple").mkdir()
    name = "Run2012BC_DoubleMuParked_Muons_rntuple_1000evts.root"
    with uproot.recreate(directory / "rntuple" / name) as file:
        file.mkrntuple("Events", {"count": numpy.arange(1000), "pt": numpy.linspace(0, 90, 1000, dtype="f4")})


def tables(directory: pathlib.Path) -> None:
    """Parquet: millions of rows in row groups, a footer larger than the data, pages of many types."""
    import pyarrow
    import pyarrow.parquet

    place = directory / "parquet"
    place.mkdir()
    rows = 3_000_000
    delay = (numpy.arange(rows, dtype="i8") * 7919 % 1013 - 200).astype("i2")
    columns = {"date": numpy.arange(rows, dtype="i8"), "delay": delay, "distance": delay.astype("i4") * 3}
    pyarrow.parquet.write_table(
        pyarrow.table(columns), place / "flights-3m.parquet", row_group_size=280_000, compression="zstd"
    )
    wide = {f"c{number}": numpy.arange(40) * number for number in range(400)}
    pyarrow.parquet.write_table(pyarrow.table(wide), place / "nano_dy.parquet")
    numbers = numpy.arange(7300)
    types = {"id": numbers, "odd": numbers % 2 == 1, "text": numbers.astype("U"), "half": numbers / 2}
    pyarrow.parquet.write_table(
        pyarrow.table(types), place / "alltypes_tiny_pages.parquet", data_page_size=64, write_page_index=True
    )


def grids(directory: pathlib.Path) -> None:
    """NetCDF-4, the same as Zarr v2 with its metadata in one place, and kerchunk's references into the first."""
    import kerchunk.hdf
    import xarray

    place = directory / "netcdf"
    place.mkdir()
    shape = {"time": 54, "latitude": 18, "longitude": 432}
    kelvin = 273 + numpy.random.default_rng(2).normal(size=tuple(shape.values())).astype("f4")
    dataset = xarray.Dataset({"surface_temperature": (tuple(shape), kelvin)}, {"time": numpy.arange(54)})
    chunks = {"surface_temperature": {"chunksizes": (1, 18, 432)}}
    dataset.to_netcdf(place / "ostia_monthly.nc", engine="h5netcdf", encoding=chunks)
    with open(place / "ostia_monthly.nc", "rb") as file:
        references = kerchunk.hdf.SingleHdf5ToZarr(file, "{{u}}/ostia_monthly.nc").translate()
    references["templates"] = {"u": "."}
    (place / "ostia_monthly.kerchunk.json").write_text(json.dumps(references))
    (directory / "zarr").mkdir()
    pieces = {"surface_temperature": {"chunks": (6, 18, 144)}}
    dataset.to_zarr(
        directory / "zarr" / "ostia_monthly_v2.zarr", zarr_format=2, consolidated=True, encoding=pieces
    )


def datasets(directory: pathlib.Path) -> None:
    """HDF5 with many compressed datasets."""
    import h5py

    (directory / "hdf5").mkdir()
    random = numpy.random.default_rng(3)
    with h5py.File(directory / "hdf5" / "km3net_basic_analysis_sample.h5", "w") as file:
        for number in range(33):
            values = random.integers(0, 1000, size=5_000 * (number % 5))
            file.create_dataset(
                f"g{number % 4}/d{number}",
                data=values,
                **({"compression": "gzip", "chunks": True} if len(values) else {}),
            )


def seismograms(directory: pathlib.Path) -> None:
    """MiniSEED: one channel, one with gaps, two of them with different rates."""
    import obspy

    place = directory / "miniseed"
    place.mkdir()
    random = numpy.random.default_rng(4)
    begin = obspy.UTCDateTime(2020, 1, 1)

    def trace(channel: str, rate: float, count: int, after_s: float = 0.0) -> obspy.Trace:
        header = {"station": "A", "channel": channel, "sampling_rate": rate, "starttime": begin + after_s}
        return obspy.Trace(random.integers(-10_000, 10_000, size=count, dtype="i4"), header)

    for name, traces in [
        ("test.mseed", [trace("BHZ", 40.0, 11_947)]),
        ("gaps.mseed", [trace("BHZ", 200.0, 9_000, after_s) for after_s in (0.0, 60.0, 130.0)]),
        ("CH.BALST..LH_two_channels", [trace("LHN", 1.0, 40_000), trace("LHZ", 1.0, 40_000)]),
    ]:
        obspy.Stream(traces).write(str(place / name), format="MSEED", reclen=512, encoding="STEIM2")
