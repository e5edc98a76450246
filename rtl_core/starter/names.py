"""Words for the names of starter problems. Internal signals of golden answers (s, c, k, z, ...) are not among them."""

from __future__ import annotations

import random

CLOCKS = ("clk", "clock", "ck", "mclk", "sysclk", "clk_i", "pclk", "tick")
RESETS_HIGH = ("rst", "reset", "clear", "srst", "rst_i", "reset_h", "clr")
RESETS_LOW = ("rst_n", "resetn", "nreset", "clr_n", "reset_b", "nrst")
PORTS = (
    "a",
    "b",
    "x",
    "y",
    "d",
    "q",
    "u",
    "v",
    "data",
    "din",
    "dout",
    "val",
    "res",
    "op",
    "lhs",
    "rhs",
    "left",
    "right",
    "src",
    "dst",
    "num",
    "acc",
    "sum",
    "out",
    "word",
    "bus",
    "key",
    "sig",
    "code",
    "vec",
)
SUFFIXES = ("", "", "", "", "", "", "_i", "_o", "_x", "_r")
PARAMETERS = ("W", "N", "WIDTH", "SIZE", "BITS")
MODULE_WORDS = (
    "pix",
    "alu",
    "core",
    "unit",
    "blk",
    "node",
    "fast",
    "mini",
    "top",
    "io",
    "dma",
    "uart",
    "bus",
    "pwm",
    "adc",
    "cpu",
    "net",
    "mem",
    "sub",
    "main",
    "ctl",
    "aux",
    "img",
    "dsp",
    "fifo",
    "hub",
)
ALL = (*CLOCKS, *RESETS_HIGH, *RESETS_LOW, *PORTS, *MODULE_WORDS, *PARAMETERS)
MODULES = tuple(f"{p}_{q}" for p in MODULE_WORDS for q in MODULE_WORDS if p != q)


def draw_ports(rng: random.Random, count: int) -> tuple[str, ...]:
    """Draw `count` different port names, two in five with a suffix."""
    return tuple(word + rng.choice(SUFFIXES) for word in rng.sample(PORTS, count))
