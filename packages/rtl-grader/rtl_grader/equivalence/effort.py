"""How much is tried before two designs are called the same."""

from __future__ import annotations

from dataclasses import dataclass

from rtl_grader.traces import stimuli


@dataclass(frozen=True)
class Effort(stimuli.Effort):
    """The inputs of simulations (see `stimuli.Effort`), and the CPU time of simulations and proofs."""

    cycles: int = 160
    stretch: int = 300
    run: int = 8_200
    """As in the base class. In the two longest runs a counter of 14 bits wraps."""
    parameter_sets: int = 4
    """Number of other parameter values to try."""
    cpu_s: float = 20.0
    """CPU time of each simulation of one design."""
    proof_cpu_s: float = 0.0
    """CPU time of each proof for designs that were not told apart; 0 means none."""
    proof_first: bool = False
    """Prove before simulating, and simulate only what is not decided."""

    @classmethod
    def of_cycles(
        cls, cycles: int, parameter_sets: int = 6, proof_cpu_s: float = 0.0
    ) -> Effort:
        """Inputs as in the base class, for each set of parameters."""
        inputs = stimuli.Effort.of_cycles(cycles)
        return cls(
            **vars(inputs),
            parameter_sets=parameter_sets,
            cpu_s=20.0 + cycles / 200,
            proof_cpu_s=proof_cpu_s,
        )


USUAL = Effort()
