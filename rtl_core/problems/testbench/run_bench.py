"""Compile an answer with a test bench, run it, exit 0 only if the bench's own verdict line says that it passed.

The answer is hostile code in the same simulation as the bench, so:
* it goes through the preprocessor first, and is refused if it then uses a system task that is not on the list below (files,
  `$finish`, plusargs, ...) or if it includes a file. Nothing that a macro pastes together stays hidden.
* the verdict line's words, and the bench's modules, instances and tasks, are renamed with a random word of this run, so that
  the answer can neither print the verdict, nor reach into the bench, nor use the reference that stands in it.
Reads /src/bench.json; needs only Python's standard library and Icarus Verilog.
"""

import json
import os
import re
import secrets
import subprocess
import sys

ALLOWED = {
    "$display", "$write", "$monitor", "$strobe", "$displayb", "$displayh", "$displayo", "$error", "$warning", "$info",
    "$signed", "$unsigned", "$clog2", "$bits", "$size", "$high", "$low", "$left", "$right", "$increment", "$dimensions",
    "$countones", "$onehot", "$onehot0", "$isunknown", "$time", "$stime", "$realtime", "$random", "$urandom",
    "$urandom_range", "$rtoi", "$itor", "$realtobits", "$bitstoreal", "$ceil", "$floor", "$pow", "$sqrt", "$ln", "$log10",
}  # fmt: skip
HDL = (".v", ".sv")


def main():
    bench = json.loads(read("/src/bench.json"))
    design = "/code/" + bench["design"]
    if not os.path.isfile(design):
        return f"there is no {bench['design']}"
    if re.search(r"`\s*include\b", read(design)):
        return "the answer includes a file, which is not allowed here"
    word = "b" + secrets.token_hex(12)
    place = os.path.join(os.getcwd(), word)
    os.mkdir(place)
    os.chdir(place)
    done = run(["iverilog", "-g2012", "-E", "-o", "design.sv", design])
    if done.returncode:
        return done.stdout
    used = set(re.findall(r"\$[A-Za-z_]\w*", without_comments_and_strings(read("design.sv")))) - ALLOWED
    if used:
        return f"the answer uses {', '.join(sorted(used))}, which is not allowed here"
    secret = word + "_verdict"
    for name in bench["files"]:
        text = read("/src/" + name)
        if name.endswith(HDL):
            for hidden in bench["hidden"]:
                text = re.sub(rf"\b{re.escape(hidden)}\b", f"{hidden}_{word}", text)
            text = text.replace(bench["marker"], secret)
        with open(name, "w") as file:
            file.write(text)
    sources = [name for name in bench["files"] if name.endswith(HDL)]
    top = f"{bench['top']}_{word}"
    done = run(["iverilog", "-g2012", "-Wno-timescale", "-o", "sim", "-s", top, *sources, "design.sv"])
    if done.returncode:
        return done.stdout.replace("_" + word, "")
    with open("log", "wb") as log:
        code = subprocess.call(["vvp", "-n", "sim", "-none"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    printed = read("log")
    good = re.search(secret + bench["passed"], printed) is not None
    print(printed.replace(secret, bench["marker"]).replace("_" + word, "")[-8000:])
    if code:
        return f"the simulator ended with code {code}"
    if not good:
        return "the test bench did not say that the design passed"
    return None


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def run(command):
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True,
        errors="replace",
    )  # fmt: skip


def without_comments_and_strings(text):
    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', " ", text, flags=re.S)


if __name__ == "__main__":
    complaint = main()
    if complaint:
        print(complaint[-4000:])
        print("0 of 1 tests passed")
    else:
        print("1 of 1 tests passed")
    sys.exit(1 if complaint else 0)
