"""uproot: the source handler, and the filesystems without it; the same arrays as from the files themselves."""

import pickle
import queue
import threading

import numpy
import pytest
import uproot
from conftest import Serve, data_directory

import gridlane
import gridlane.fsspec
import gridlane.uproot

FILES = [
    ("uproot-issue121.root", "Events"),
    ("uproot-Zmumu.root", "events"),
    ("uproot-HZZ.root", "events"),
    ("uproot-issue412.root", "test"),
    ("NanoAODv5_sample.root", "Events"),
]


def source(data, scheme, name):
    return data.url(scheme, f"root/{name}")


def same(found, wanted):
    # Some values are no numbers, which equal nothing.
    for name in wanted:
        numpy.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    return set(found) == set(wanted)


def flat(tree, count=40):
    """Names of branches that are plain arrays."""
    names = [branch.name for branch in tree.branches if isinstance(branch.interpretation, uproot.AsDtype)]
    return names[:count]


@pytest.mark.parametrize(("name", "tree"), FILES)
def test_arrays_by_the_handler(data, scheme, name, tree):
    with uproot.open(data_directory() / "root" / name) as file:
        branches = flat(file[tree])
        wanted = file[tree].arrays(branches, library="np")
    with uproot.open(source(data, scheme, name), handler=gridlane.uproot.Source) as file:
        assert isinstance(file.file.source, gridlane.uproot.Source)
        assert same(file[tree].arrays(branches, library="np"), wanted)
        assert file.file.source.num_requested_chunks > 0 and file.file.source.num_requests > 0
        assert file.file.source.file.explain()["calls"] > 0


@pytest.mark.parametrize("protocol", ["glhttp", "glroot"])
def test_arrays_by_the_filesystem(data, protocol):
    with uproot.open(data_directory() / "root" / "uproot-issue121.root") as file:
        branches = flat(file["Events"])
        wanted = file["Events"].arrays(branches, library="np")
    with uproot.open(f"gl{source(data, protocol[2:], 'uproot-issue121.root')}:Events") as tree:
        assert same(tree.arrays(branches, library="np"), wanted)


def test_an_rntuple(data, scheme):
    name = "Run2012BC_DoubleMuParked_Muons_rntuple_1000evts.root"
    with uproot.open(data_directory() / "rntuple" / name) as file:
        wanted = file["Events"].arrays()
    with uproot.open(data.url(scheme, f"rntuple/{name}"), handler=gridlane.uproot.Source) as file:
        assert file["Events"].arrays().tolist() == wanted.tolist()


def test_iterating_and_many_threads(data, scheme):
    url = source(data, scheme, "uproot-issue412.root")
    with uproot.open(url, handler=gridlane.uproot.Source, num_workers=4, use_threads=True) as file:
        batches = file["test"].iterate(step_size=100_000, library="np")
        total = sum(float(batch[name].sum()) for batch in batches for name in batch)
    with uproot.open(data_directory() / "root" / "uproot-issue412.root") as file:
        whole = file["test"].arrays(library="np")
    assert total == pytest.approx(sum(float(whole[name].sum()) for name in whole))
    found, failures = [], []

    def work():
        try:
            with uproot.open(url, handler=gridlane.uproot.Source) as file:
                found.append(file["test"].arrays(library="np", entry_stop=50_000))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and all(same(each, found[0]) for each in found)


def test_every_chunk_is_told_once(data, scheme):
    content = (data_directory() / "root" / "uproot-Zmumu.root").read_bytes()
    with gridlane.uproot.Source(source(data, scheme, "uproot-Zmumu.root")) as handler:
        assert handler.num_bytes == len(content)
        ranges = [(0, 403), (100_000, 150_000), (5, 5), (0, 403), (170_000, 178_900)]
        told = queue.Queue()
        chunks = handler.chunks(ranges, told)
        assert [(chunk.start, chunk.stop) for chunk in chunks] == ranges
        filled = [told.get(timeout=30) for _ in ranges]
        assert {id(chunk) for chunk in filled} == {id(chunk) for chunk in chunks} and told.empty()
        for chunk in chunks:
            assert bytes(chunk.raw_data) == content[chunk.start : chunk.stop]
        assert bytes(handler.chunk(10, 20).raw_data) == content[10:20]
        assert handler.chunks([], told) == []
        # What is behind the end is an error, and no end of waiting.
        late = handler.chunks([(len(content) - 900, len(content) + 20_000)], told)
        assert told.get(timeout=30) is late[0]
        with pytest.raises(OSError):
            late[0].wait()
    assert handler.closed
    with pytest.raises(OSError):
        handler.chunk(0, 10)
    with pytest.raises(OSError):
        handler.chunks([(0, 10)], told)


def test_a_source_that_dies_ends_the_wait(tmp_path, home):
    (tmp_path / "f").write_bytes(bytes(50_000_000))
    serve = Serve(tmp_path, home, "--limit-rate", "2M")
    handler = gridlane.uproot.Source(serve.url("http", "f"), patience=1.0, policy="vector")
    told = queue.Queue()
    chunks = handler.chunks(
        [(number * 5_000_000, number * 5_000_000 + 4_000_000) for number in range(8)], told
    )
    serve.process.kill()
    serve.process.communicate()
    filled = [told.get(timeout=60) for _ in chunks]
    assert len(filled) == 8
    with pytest.raises(OSError):
        for chunk in chunks:
            chunk.wait()
    handler.close()


def test_a_closed_source_fails_what_is_under_way(slow, scheme):
    handler = gridlane.uproot.Source(slow.url(scheme, "f"), policy="vector")
    told = queue.Queue()
    chunks = handler.chunks(
        [(number * 5_000_000, number * 5_000_000 + 4_000_000) for number in range(8)], told
    )
    handler.close()
    for _ in chunks:
        told.get(timeout=20)
    with pytest.raises(OSError):
        for chunk in chunks:
            chunk.wait()


def test_a_pickled_source_opens_again(data, scheme):
    with uproot.open(source(data, scheme, "uproot-Zmumu.root"), handler=gridlane.uproot.Source) as file:
        tree = pickle.loads(pickle.dumps(file["events"]))
        assert same(
            tree.arrays(["px1", "py1"], library="np"), file["events"].arrays(["px1", "py1"], library="np")
        )


def test_replicas(data):
    urls = [source(data, scheme, "uproot-Zmumu.root") for scheme in ("http", "root")]
    with uproot.open(urls[0], handler=gridlane.uproot.Source, replicas=urls[1:]) as file:
        assert file["events"].num_entries == 2304


def test_what_is_not_there(data, scheme):
    with pytest.raises(FileNotFoundError):
        uproot.open(source(data, scheme, "none.root"), handler=gridlane.uproot.Source)
