"""Learners and small products run on one thread, whatever the machine has."""

import numpy as np
from threadpoolctl import threadpool_info

from synthdp.errors import one_thread


def test_every_library_of_numbers_takes_one_thread_and_has_its_own_back() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    before = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    assert before
    with one_thread():
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    assert {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()} == before
