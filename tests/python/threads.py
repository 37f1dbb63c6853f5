"""Threads of the library's pool, and threads of a caller."""

import threading

from mlx_lattice import core


def with_threads(*counts):
    """Each of the counts while the pool has so many threads; then the former count comes back."""
    before = core.thread_count()
    try:
        for count in counts:
            core.set_thread_count(count)
            yield count
    finally:
        core.set_thread_count(before)


def run_together(work, count):
    """Calls work() in `count` threads at a time and raises the first of their errors."""
    failures = []

    def guarded():
        try:
            work()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=guarded) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
