"""The instances of one module in a compiled Icarus program (a `vvp` file), and what their ports can do. Standard library only.

A test bench and a design that are simulated together are two programs in one. These functions tell the design's part from
the bench's, so that a design compiled alone can be compared with the same design beside its bench.
"""

import re

import compiled
from compiled import STRING, scopes

_SOURCE = r"(?:-?\d+ -?\d+, )?(\S+); +(?:alias, )?(\d+) drivers"
_PORT = re.compile(rf"^ +\.port_info \d+ /(\w+) +\d+ {STRING}", re.M)
_NET = re.compile(rf"^v\w+ \.net\S* (?:{STRING}|(v\w+) \d+), {_SOURCE}", re.M)
_ARRAY = re.compile(rf"^(v\w+) \.array {STRING}", re.M)
_FLOATING = re.compile(r"^(o\w+) \.functor BUFZ ", re.M)


def instances(program, module):
    """The instances of `module`, each as a list of its scopes (compiled.Scope), its own first.

    An instance below another is part of it.
    """
    found: list = []
    within: dict = {}
    for scope in scopes(program):
        if scope.parent in within:
            within[scope.label] = within[scope.parent]
            within[scope.label].append(scope)
        elif scope.kind == "module" and scope.type == module:
            within[scope.label] = [scope]
            found.append(within[scope.label])
    return found


def shape(instance):
    """What must be the same alone and beside a bench: scopes, ports and parameters.

    The names that Icarus gives to nameless scopes count through the whole program, so they are left out.
    """
    compared = []
    for place, scope in enumerate(instance):
        names = [word if word[:1] != "$" else "$" for word in (scope.name if place else "", scope.type)]
        held = [(p.kind, p.name, p.local, p.value) for p in compiled.parameters(scope.text)]
        compared.append((scope.kind, *names, _PORT.findall(scope.text), held))
    return compared


def parameters(instance, names):
    """Verilog text that sets an instance's overridable parameters to the values they have: `.WIDTH(4'b1000), ...`.

    Only those in `names`, all if `*` is one of them. Real numbers are left out.
    """
    given = []
    for parameter in compiled.parameters(instance[0].text):
        if parameter.local or not ({parameter.name, "*"} & set(names)):
            continue
        if parameter.number:
            signed, bits = parameter.number
            given.append(f".{parameter.name}({len(bits)}'{'s' if signed else ''}b{bits})")
        elif parameter.kind == "str":
            given.append(f".{parameter.name}({parameter.value})")
    return ", ".join(given)


def port_complaint(instance, program, expected, connected):
    """Why an instance whose ports are open could reach through them into a bench; None when it cannot.

    `expected` are the (name, direction) that a right design has, in order, and may be empty; `connected` says how the
    bench connects them: `named`, `positional` or `wildcard`. An input must be a net that nothing in the design drives,
    pulls or joins with another input: Icarus makes a port and what is connected to it one net.
    """
    text = instance[0].text
    ports = _PORT.findall(text)
    if len({name for _, name in ports}) < len(ports):
        return "two ports of the answer have one name"
    wanted = dict(expected)
    for place, (direction, name) in enumerate(ports):
        if connected == "positional":
            right = expected[place][1] if place < len(expected) else None
        elif connected == "wildcard" and expected and name not in wanted:
            return f"the answer has a port {name} that was not asked for"
        else:
            right = wanted.get(name)
        if direction.lower() != right and (right or direction == "INOUT"):
            return f"the answer's port {name} is an {direction.lower()}" + (f", not an {right}" if right else "")
    driven = driven_inputs(text, program)
    return f"the answer drives its own input {driven[0]}, or joins it with another" if driven else None


def driven_inputs(text, program):
    """The inputs that a design drives, pulls or joins with another, by name. `text` is that of the design's own scope, whose
    ports are open: those of a root, or of an instance that nothing is connected to.
    """
    arrays = dict(_ARRAY.findall(text))
    nets: dict = {}
    for name, array, source, drivers in _NET.findall(text):
        nets.setdefault(arrays.get(array) if array else name, []).append((source, drivers))
    floating = set(_FLOATING.findall(program))
    taken: set = set()
    found = []
    for direction, name in _PORT.findall(text):
        if direction == "INPUT":
            sources = {source for source, drivers in nets.get(name, ()) if drivers == "0" and source in floating}
            if not sources or len(sources) < len(nets[name]) or sources & taken:
                found.append(name)
            taken |= sources
    return found


def root_complaints(program, top="", watched=None):
    """Why a program must not be run beside a harness that drives the roots from outside; empty when it may.

    What such a harness reads back from an input is what the design puts there, if it drives it as well. `watched`, if
    known, are the names of (inputs, outputs) that the text of the module `top` shows: the grader looks at those.
    """
    found = []
    for root in (scope for scope in scopes(program) if scope.kind == "module" and scope.parent is None):
        driven = driven_inputs(root.text, program)
        found += [f"{root.name} drives its own input {name}, or joins it with another" for name in driven]
        if watched is not None and root.name == top:
            ports = _PORT.findall(root.text)
            there = tuple({name for direction, name in ports if direction == d} for d in ("INPUT", "OUTPUT"))
            if there != tuple(map(set, watched)):
                found.append(f"{top} has other ports for the simulator than its text shows")
    return found
