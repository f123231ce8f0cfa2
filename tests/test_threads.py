"""How work is shared among threads."""

import threading

import pytest

from proba.threads import in_parallel, set_threads


@pytest.mark.parametrize("threads", [1, 2])
def test_results_come_in_the_order_of_the_items(threads):
    try:
        count = set_threads(threads)
        seen = set()

        def work(item: int) -> int:
            seen.add(threading.get_ident())
            return item * item

        assert in_parallel(work, range(7)) == [k * k for k in range(7)]
        assert 1 <= len(seen) <= count
        assert in_parallel(work, []) == []
    finally:
        set_threads(None)


def test_an_error_in_a_thread_is_an_error():
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda item: 1 / item, [1, 0, 2])
