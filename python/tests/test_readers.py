"""Other people's readers, each with a real file: xarray, zarr, kerchunk, pyarrow, DuckDB, obspy, dask, pandas, h5py."""

import io
import json
import os

import fsspec
import numpy
import pytest
from conftest import data_directory

import gridlane
import gridlane.fsspec
import gridlane.mseed
import gridlane.parquet

NETCDF = "netcdf/ostia_monthly.nc"
PARQUET = "parquet/flights-3m.parquet"


@pytest.fixture
def fs(data, scheme):
    if scheme == "root":
        return fsspec.filesystem("glroot", hostid=data.host)
    return fsspec.filesystem("glhttp")


@pytest.fixture
def path(data, scheme):
    return lambda name: f"/{name}" if scheme == "root" else data.url("http", name)


@pytest.fixture
def url(data, scheme):
    return lambda name: f"gl{data.url(scheme, name)}"


def test_xarray_opens_netcdf(data, scheme):
    import xarray

    with xarray.open_dataset(data_directory() / NETCDF, engine="h5netcdf") as wanted:
        with gridlane.open(data.url(scheme, NETCDF)) as file:
            with xarray.open_dataset(file, engine="h5netcdf") as found:
                assert found.surface_temperature.isel(time=3).equals(wanted.surface_temperature.isel(time=3))
            assert file.explain()["calls"] > 0


def test_xarray_opens_zarr(url):
    import xarray

    found = xarray.open_zarr(url("zarr/ostia_monthly_v2.zarr"), consolidated=True)
    with xarray.open_dataset(data_directory() / NETCDF, engine="h5netcdf") as wanted:
        numpy.testing.assert_array_equal(found.surface_temperature.values, wanted.surface_temperature.values)


def test_zarr_reads_a_group(data, scheme):
    import zarr

    options = {"hostid": data.host} if scheme == "root" else {}
    fs = fsspec.filesystem(f"gl{scheme}", asynchronous=True, **options)
    place = (
        "/zarr/ostia_monthly_v2.zarr" if scheme == "root" else data.url("http", "zarr/ostia_monthly_v2.zarr")
    )
    store = zarr.storage.FsspecStore(fs, path=place, read_only=True)
    group = zarr.open_group(store, mode="r", zarr_format=2)
    assert group["surface_temperature"].shape == (54, 18, 432)
    assert float(group["surface_temperature"][3, 4, 5]) > 200


def test_zarr_shards_are_read_by_their_end(server, place):
    import zarr

    whole = numpy.arange(10_000, dtype="i4").reshape(100, 100)
    array = zarr.create_array(
        str(place / "a.zarr"), shape=(100, 100), chunks=(10, 10), shards=(50, 50), dtype="i4"
    )
    array[:] = whole
    fs = fsspec.filesystem("glhttp", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, path=server.url("http", f"{place.name}/a.zarr"), read_only=True)
    found = zarr.open_array(store, mode="r")
    numpy.testing.assert_array_equal(found[15:33, 40:61], whole[15:33, 40:61])


def test_kerchunk_references(data, scheme, url):
    import xarray
    import zarr

    references = json.loads((data_directory() / "netcdf" / "ostia_monthly.kerchunk.json").read_text())
    references["templates"]["u"] = url("netcdf")
    options = {"hostid": data.host} if scheme == "root" else {}
    options["asynchronous"] = True
    fs = fsspec.filesystem(
        "reference", fo=references, remote_protocol=f"gl{scheme}", remote_options=options, asynchronous=True
    )
    store = zarr.storage.FsspecStore(fs, read_only=True)
    found = xarray.open_zarr(store, consolidated=False, zarr_format=2)
    with xarray.open_dataset(data_directory() / NETCDF, engine="h5netcdf") as wanted:
        numpy.testing.assert_array_equal(
            found.surface_temperature.isel(time=5).values, wanted.surface_temperature.isel(time=5).values
        )


def test_kerchunk_makes_references(data):
    from kerchunk.hdf import SingleHdf5ToZarr

    with gridlane.open(data.url("root", NETCDF)) as file:
        made = SingleHdf5ToZarr(file, "ostia.nc").translate()
    assert "surface_temperature/.zarray" in made["refs"]


def test_h5py_reads_datasets(data, scheme):
    import h5py

    name = "hdf5/km3net_basic_analysis_sample.h5"
    found = {}
    with (
        gridlane.open(data.url(scheme, name)) as remote,
        h5py.File(remote) as file,
        h5py.File(data_directory() / name) as local,
    ):
        file.visititems(
            lambda key, item: found.update({key: item}) if isinstance(item, h5py.Dataset) else None
        )
        assert len(found) == 33
        for key, item in found.items():
            assert item.shape == local[key].shape
            if item.size and item.dtype.kind in "iuf":
                numpy.testing.assert_array_equal(item[...], local[key][...])


def test_pyarrow_by_the_filesystem(fs, path):
    import pyarrow.parquet

    wanted = pyarrow.parquet.read_table(data_directory() / PARQUET, columns=["delay"])
    assert pyarrow.parquet.read_table(path(PARQUET), filesystem=fs, columns=["delay"]).equals(wanted)


def test_columns_and_row_groups_of_parquet(data, scheme):
    import pyarrow.parquet

    local = pyarrow.parquet.ParquetFile(data_directory() / PARQUET)
    names = local.schema.names[:2]
    found = gridlane.parquet.read_parquet(data.url(scheme, PARQUET), columns=names, row_groups=[0, 3])
    assert found.equals(local.read_row_groups([0, 3], columns=names))
    name = "parquet/nano_dy.parquet"
    wanted = pyarrow.parquet.read_table(data_directory() / name)
    # A footer that is larger than the tail which comes first.
    found = gridlane.parquet.read_parquet(data.url(scheme, name), tail=64)
    # Some values are no numbers, which equal nothing.
    assert found.schema == wanted.schema and repr(found.to_pydict()) == repr(wanted.to_pydict())
    assert (
        gridlane.parquet.read_parquet(data.url(scheme, "parquet/alltypes_tiny_pages.parquet")).num_rows
        == 7300
    )
    with pytest.raises(ValueError, match="no Parquet file"):
        gridlane.parquet.open_parquet(data.url(scheme, NETCDF))


def test_parquet_is_read_in_two_calls(data, monkeypatch):
    calls = []
    for name in ("pread", "readv"):
        call = getattr(gridlane.File, name)
        monkeypatch.setattr(
            gridlane.File,
            name,
            lambda *args, _call=call, _name=name, **options: (calls.append(_name), _call(*args, **options))[
                1
            ],
        )
    file = gridlane.parquet.open_parquet(
        data.url("http", PARQUET), columns=["delay"], row_groups=[1], policy="vector", budget=1.0
    )
    assert file.read_row_group(1, columns=["delay"]).num_rows > 0
    assert calls == ["pread", "readv"]
    # Another column is not there yet.
    assert file.read_row_group(1).num_columns > 1 and len(calls) > 2
    file.close(force=True)


def test_pandas_reads(data, url):
    import pandas

    frame = pandas.read_parquet(url(PARQUET), columns=["delay"])
    assert len(frame) == 3_000_000


def test_duckdb_by_register_filesystem(fs, path, data, scheme):
    import duckdb

    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        where = f"glroot://{data.host}/{path(PARQUET)}" if scheme == "root" else f"gl{path(PARQUET)}"
        ((count, mean),) = connection.sql(
            f"select count(*), avg(delay) from read_parquet('{where}')"
        ).fetchall()
        wanted = connection.sql(
            f"select avg(delay) from read_parquet('{data_directory() / PARQUET}')"
        ).fetchall()
    assert count == 3_000_000 and mean == wanted[0][0]


def test_obspy_reads_miniseed(data, scheme):
    import obspy

    name = "miniseed/test.mseed"
    with gridlane.open(data.url(scheme, name)) as file:
        found = obspy.read(file)
    assert found == obspy.read(str(data_directory() / name))


@pytest.mark.parametrize("name", ["test.mseed", "gaps.mseed", "CH.BALST..LH_two_channels"])
def test_time_windows_of_miniseed(data, scheme, name):
    import obspy

    whole = obspy.read(str(data_directory() / "miniseed" / name))
    first, last = min(trace.stats.starttime for trace in whole), max(trace.stats.endtime for trace in whole)
    for begin, end in [(0.0, 1.0), (0.3, 0.4), (0.9, 1.0), (0.5, 0.5001)]:
        start, stop = first + (last - first) * begin, first + (last - first) * end
        found = gridlane.mseed.read_window(data.url(scheme, f"miniseed/{name}"), start, stop)
        wanted = obspy.read(str(data_directory() / "miniseed" / name)).trim(start, stop - 1e-6)
        got = obspy.read(io.BytesIO(found)).trim(start, stop - 1e-6) if found else obspy.Stream()
        wanted, got = (stream.merge(method=0).sort() for stream in (wanted, got))
        assert len(got) == len(wanted)
        for mine, theirs in zip(got, wanted):
            assert mine.id == theirs.id and mine.stats.npts == theirs.stats.npts
            numpy.testing.assert_array_equal(numpy.ma.filled(mine.data, -1), numpy.ma.filled(theirs.data, -1))


def test_a_window_of_a_long_file_is_found_by_bisection(server, place):
    import obspy

    samples = numpy.arange(2_500_000, dtype="i4") * 7919 % 100_003
    trace = obspy.Trace(
        samples, {"sampling_rate": 100.0, "starttime": obspy.UTCDateTime(2020, 1, 1), "station": "A"}
    )
    obspy.Stream([trace]).write(str(place / "day.mseed"), format="MSEED", reclen=512, encoding="STEIM2")
    assert os.path.getsize(place / "day.mseed") > 512 * 4096
    url = server.url("http", f"{place.name}/day.mseed")
    start = obspy.UTCDateTime(2020, 1, 1, 3)
    with gridlane.open(url, policy="vector", budget=1.0) as file:
        ranges = gridlane.mseed.window(file, start, start + 60)
        assert len(ranges) == 1 and ranges[0][1] < 100_000
    found = obspy.read(io.BytesIO(gridlane.mseed.read_window(url, start, start + 60))).trim(
        start, start + 60 - 0.01
    )
    assert found[0].stats.starttime == start
    numpy.testing.assert_array_equal(found[0].data, samples[1_080_000:1_086_000])


def test_a_long_record_of_another_channel_reaches_into_the_window(server, place):
    import obspy

    begin = obspy.UTCDateTime(2020, 1, 1)
    fast = numpy.arange(2_500_000, dtype="i4") * 7919 % 100_003
    slow = numpy.arange(2000, dtype="i4")
    parts = []
    for samples, rate, channel in [(fast, 100.0, "HHZ"), (slow, 0.01, "LHZ")]:
        header = {"sampling_rate": rate, "starttime": begin, "station": "A", "channel": channel}
        written = io.BytesIO()
        trace = obspy.Trace(samples, header)
        obspy.Stream([trace]).write(written, format="MSEED", reclen=512, encoding="STEIM2")
        records = written.getvalue()
        parts += [records[at : at + 512] for at in range(0, len(records), 512)]
    # Their times, of the year down to the fraction, are big-endian numbers.
    parts.sort(key=lambda record: record[20:30])
    assert len(parts) > 4096
    (place / "two.mseed").write_bytes(b"".join(parts))
    start = begin + 4 * 3600
    url = server.url("http", f"{place.name}/two.mseed")
    found = obspy.read(io.BytesIO(gridlane.mseed.read_window(url, start, start + 300))).merge()
    assert {trace.stats.channel for trace in found} == {"HHZ", "LHZ"}
    for trace in found:
        assert trace.stats.starttime <= start and trace.stats.endtime >= start + 299
        first = round((trace.stats.starttime - begin) * trace.stats.sampling_rate)
        wanted = {"HHZ": fast, "LHZ": slow}[trace.stats.channel]
        numpy.testing.assert_array_equal(trace.data, wanted[first : first + len(trace)])


@pytest.mark.parametrize("byteorder", [">", "<"])
def test_records_of_either_order_of_bytes(server, place, byteorder):
    import obspy

    begin = obspy.UTCDateTime(2020, 1, 1)
    samples = numpy.arange(20_000, dtype="i4") * 7919 % 100_003
    trace = obspy.Trace(samples, {"sampling_rate": 10.0, "starttime": begin, "station": "A"})
    name = str(place / "f.mseed")
    trace.write(name, format="MSEED", reclen=512, encoding="INT32", byteorder=byteorder)
    url = server.url("http", f"{place.name}/f.mseed")
    found = obspy.read(io.BytesIO(gridlane.mseed.read_window(url, begin + 100, begin + 200)))
    found = found.merge().trim(begin + 100, begin + 199.9)
    numpy.testing.assert_array_equal(found[0].data, samples[1000:2000])


def test_records_that_are_in_no_order_say_so(server, place):
    import obspy

    begin = obspy.UTCDateTime(2020, 1, 1)
    samples = numpy.arange(2_500_000, dtype="i4") * 7919 % 100_003
    written = io.BytesIO()
    trace = obspy.Trace(samples, {"sampling_rate": 100.0, "starttime": begin, "station": "A"})
    obspy.Stream([trace]).write(written, format="MSEED", reclen=512, encoding="STEIM2")
    records = written.getvalue()
    half = len(records) // 1024 * 512
    (place / "f.mseed").write_bytes(records[half:] + records[:half])
    with pytest.raises(ValueError, match="not in the order of their times"):
        gridlane.mseed.read_window(server.url("http", f"{place.name}/f.mseed"), begin + 100, begin + 200)


def test_what_is_no_miniseed(server, place):
    (place / "text").write_bytes(b"no records\n" * 1000)
    with pytest.raises(ValueError, match="MiniSEED"):
        gridlane.mseed.read_window(server.url("http", f"{place.name}/text"), 0, 1)


def test_dask_reads_blocks(data, url, server, place, scheme):
    import dask.bag
    import dask.bytes

    (place / "lines.txt").write_text("".join(f"{number}\n" for number in range(100_000)))
    lines = dask.bag.read_text(f"gl{server.url(scheme, place.name)}/lines.txt", blocksize=100_000)
    assert lines.npartitions > 3
    assert lines.map(int).sum().compute(scheduler="processes", num_workers=2) == sum(range(100_000))
