"""Compiles and simulates one design with its test benches, and reads what they printed. Runs in the sandbox, with
Python's standard library, Icarus Verilog and the sandbox's /guard/lib.

The design is in the same simulation as the bench. It can print, end the simulation, or hang. It cannot print
a line of the bench: each begins with a random mark that is chosen when the design is already given. The names
of the bench hold a word made of the design's text, so no name of the design leads there.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import zlib

try:
    import gate
except ImportError as missing:
    sys.exit(f"this sandbox cannot look into compiled programs: {missing}")

HDL = (".v", ".sv", ".vh", ".svh")
WORKSPACE = "/code"
"""The folder whose files a design may include and load."""
HIDDEN = ("/code/src/", "/code/rundir/")


def unpacked(text):
    """What `packed` (bench.py) made of a text, as bytes."""
    return zlib.decompress(base64.b64decode(text))


def packed(data):
    """The same for bytes."""
    return base64.b64encode(zlib.compress(data, 6)).decode()


class Design:
    """A design in a folder of its own: `files` are its HDL files, in the order of compilation."""

    def __init__(self, files, options):
        self.files = files
        self.options = options
        digest = hashlib.sha256()
        for path in [*files, *headers()]:
            with open(path, "rb") as file:
                text = file.read()
            digest.update(b"%d:" % len(text))
            digest.update(text)
        self.word = "w" + digest.hexdigest()[:24]
        self.mark = os.urandom(9).hex()

    def compile(self, stimuli):
        """Compile with benches: `stimuli` is number -> lines of hexadecimal digits, bytes, one line a step.

        Returns (what the compiler says, whether it succeeded, its command).
        """
        self.prepare()
        most = 1 + max((text.count(b"\n") for text in stimuli.values()), default=0)
        tops, benches = [], []
        for number, text in stimuli.items():
            steps = text.count(b"\n") + 1
            bench = read(f"/code/src/bench{number}.sv")
            replacements = {
                "RTLWORD": self.word,
                "RTLMARK": self.mark,
                "RTLSTEPS": steps,
                "RTLREST": most - steps,
            }
            for name, value in replacements.items():
                bench = bench.replace(name, str(value))
            write(f"{self.word}/bench{number}.sv", bench.encode())
            write(f"{self.word}/stimuli{number}_{self.word}", text)
            tops += ["-s", f"bench{number}_{self.word}"]
            benches.append(f"bench{number}.sv")
        said, code, command = self.run([*tops, "-o", "sim", *benches, *self.files])
        return said, code == 0, command

    def is_read(self, top):
        """Whether the compiler accepts the design without a bench."""
        self.prepare()
        _, code, _ = self.run(["-t", "null", "-s", top, *self.files])
        return code == 0

    def preprocess(self):
        """Write the text that Icarus' preprocessor makes of the design. Returns (its path, why there is none)."""
        self.prepare()
        said, code, _ = self.run(["-E", "-o", "text.sv", *self.files])
        if code:
            return "", f"Icarus cannot preprocess it: {said[:300]}"
        if foreign := self.foreign():
            return "", f"it includes {foreign}, which is not a file of the problem"
        return os.path.abspath(f"{self.word}/text.sv"), ""

    def prepare(self):
        """Make the folder, with all data files where `$readmemh` looks for them: by base name, those beside the
        design first."""
        if os.path.exists(self.word):
            return
        os.mkdir(self.word)
        folders = sorted(set(map(os.path.dirname, self.files)))
        given = sorted(folder for folder, _, _ in os.walk(WORKSPACE))
        folders += [folder for folder in given if not is_hidden(folder)]
        for folder in folders:
            if folder != WORKSPACE:  # it holds what is hidden
                self.link(folder)
            for name in sorted(os.listdir(folder)):
                path = f"{folder}/{name}"
                if os.path.isfile(path) and not name.endswith(HDL):
                    self.link(path)

    def link(self, path):
        """A link to a file or folder by its base name, unless one has that name."""
        place = f"{self.word}/{os.path.basename(path)}"
        if not os.path.lexists(place):
            os.symlink(path, place)

    def run(self, words):
        """Run the compiler in the folder. Returns (what it says, its exit code, its command)."""
        command = [
            gate.real_program("iverilog"),
            "-g2012",
            "-Minclude=included",
            *self.options,
            *words,
        ]
        done = subprocess.run(
            command,
            cwd=self.word,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said = done.stdout.decode(errors="replace").replace("_" + self.word, "")
        return said, done.returncode, command

    def foreign(self):
        """The first file that the design includes from a place that is not its own; None if there is none."""
        for line in read(f"{self.word}/included").split("\n"):
            path = os.path.realpath(os.path.join(self.word, line))
            is_given = path.startswith(f"{WORKSPACE}/") and not is_hidden(path)
            if line and not is_given:
                return line
        return None

    def simulate(self, numbers):
        """Run the program. Returns (the lines of each bench, how the simulator ended if not by itself)."""
        here = os.getcwd()
        os.chdir(self.word)
        gate.stop_if_refused(["sim"], {})
        with open("log", "w+b") as log:
            os.remove("log")  # a design could load the mark of the bench's lines from it
            code = subprocess.call(
                [gate.real_program("vvp"), "-n", "sim", "-none"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            log.seek(0)
            text = log.read()
        os.chdir(here)
        ended = f" (the simulator ended with code {code})" if code else ""
        return [self.lines(text, number) for number in numbers], ended

    def lines(self, text, number):
        """What the bench of this number printed, one line a step; what the design prints is between the lines."""
        return re.findall(rb"%s%d ([01xz]+)\n" % (self.mark.encode(), number), text)


def headers():
    """Files of the workspace that a design may include: with their text a name could hold the word of the design."""
    paths = []
    for folder, _, names in os.walk(WORKSPACE):
        if not is_hidden(folder):
            paths += [f"{folder}/{name}" for name in names if not name.endswith((".v", ".sv"))]
    return sorted(paths)


def is_hidden(path):
    return f"{path}/".startswith(HIDDEN)


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
