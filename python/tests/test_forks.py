"""Forks in the middle of work: what the parent is about holds nothing up in the child."""

import multiprocessing
import os
import threading

import pytest

import gridlane

FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def in_child(work, *arguments):
    """What a function returns in the child of a fork."""
    receiver, sender = FORK.Pipe(duplex=False)
    child = FORK.Process(target=lambda: sender.send(work(*arguments)))
    child.start()
    try:
        assert receiver.poll(60), "the child hangs"
        return receiver.recv()
    finally:
        child.kill()
        child.join()


def copied(url, to):
    gridlane.copy(url, to)
    return os.path.getsize(to)


def test_copies_of_the_parent_take_no_places_in_the_child(server, place, tmp_path):
    (place / "f").write_bytes(os.urandom(4_000_000))
    (place / "small").write_bytes(b"x" * 1000)
    url = server.url("http", f"{place.name}/f")
    stop, begun = threading.Event(), threading.Semaphore(0)

    def copy(number):
        first = True

        def progress(*_):
            nonlocal first
            if first:
                begun.release()
                first = False
            if stop.is_set():
                raise InterruptedError

        with pytest.raises(InterruptedError):
            gridlane.copy(url, tmp_path / str(number), limit_rate=50_000, progress=progress)

    # As many as there are places at a near server; more would wait.
    threads = [threading.Thread(target=copy, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            assert begun.acquire(timeout=60)
        small = server.url("http", f"{place.name}/small")
        assert in_child(copied, small, tmp_path / "in_child") == 1000
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_fork_waits_for_the_steps_of_other_threads(base, place):
    (place / "f").write_bytes(b"0123456789")
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            gridlane.stat(f"{base}/f")

    threads = [threading.Thread(target=go_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(gridlane.stat, f"{base}/f").size == 10
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_positions_are_free_in_the_child(base, place):
    (place / "f").write_bytes(bytes(100_000))
    stop = threading.Event()
    with gridlane.open(f"{base}/f") as file:

        def go_on():
            while not stop.is_set():
                file.seek(0)
                file.read(10)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            for _ in range(20):
                assert in_child(lambda: (file.seek(0), len(file.read(7)))) == (0, 7)
        finally:
            stop.set()
            thread.join()
