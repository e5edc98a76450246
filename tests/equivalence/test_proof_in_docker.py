"""The simulation image has the prover, too."""

import pytest

from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from tests.equivalence.test_proof import COUNTER, GRAY, told


@pytest.mark.docker
def test_a_proof_and_a_difference_in_a_container():
    with make_executor("docker") as executor:
        grader = Grader(executor)
        assert told(grader, COUNTER, GRAY).result == "equal"
        found = told(grader, COUNTER, GRAY.replace("binary + 8'd1", "binary + 8'd1 + (binary == 9)"))
        grader.close()
    assert (found.result, len(found.trace) > 9) == ("different", True)
