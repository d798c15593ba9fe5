"""Honest programs from the field, and how each of them ends in every placement of the sandbox.

The programs are a judge's everyday work: the example of TIR-Judge's Table 4, checks in the manner of IFEval's
verifiers, equalities by sympy and math-verify, assertions as in MBPP, threads, and frameworks that test code.
"""

from __future__ import annotations

from benchmarks.honest_programs import code, concurrency, instructions, language, library, mathematics
from benchmarks.honest_programs.base import LACKING, Honest

PROGRAMS: tuple[Honest, ...] = (
    *instructions.PROGRAMS,
    *mathematics.PROGRAMS,
    *code.PROGRAMS,
    *concurrency.PROGRAMS,
    *library.PROGRAMS,
    *language.PROGRAMS,
)

__all__ = ["LACKING", "PROGRAMS", "Honest"]
