"""pyslang's binding counts at the end of a process what is still referred to, and lists it on the user's terminal."""

import subprocess
import sys

PROGRAM = """
import ctypes
from rtl_core.grading import screen
from rtl_core.problems import interface, tree
from rtl_core.types.problem import InterfaceSource

assert interface.parse_interface({"rtl/a.v": "module a(input x); endmodule"}, "a", InterfaceSource.GOLDEN)
assert tree.SourceTree("module a; endmodule").errors == 0
for function in (interface.parse_interface, tree.SourceTree.span, screen.screen):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))  # as a library's thread does that outlives the interpreter
"""


def test_a_function_that_outlives_the_interpreter_keeps_nothing_of_pyslang_alive():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
