"""Finds the instances of a module in a compiled Icarus program (a `vvp` file) and checks their ports.
Standard library only.

A program may contain a design and its test bench. These functions separate the two, so that a design
compiled alone can be compared with the same design compiled with its bench.
"""

import re

import compiled
from compiled import PORT, STRING, scopes

_SOURCE = r"(?:-?\d+ -?\d+, )?(\S+); +(?:alias, )?(\d+) drivers"
_NET = re.compile(rf"^v\w+ \.net\S* (?:{STRING}|(v\w+) \d+), {_SOURCE}", re.M)
_ARRAY = re.compile(rf"^(v\w+) \.array {STRING}", re.M)
_ESCAPED = re.compile(r"\\(.)")
_PULL = r"BUFT \d+, C8<(?:[0-5][0-5][01])+>, C4<0>, C4<0>, C4<0>;"
_FREE = re.compile(rf"^(o\w+(?= \.functor BUF[ZT] )|L\w+(?= \.functor {_PULL}))", re.M)
"""The sources of nets that nothing drives, and of constant pulls, which any driver overrides."""


def instances(program, module):
    """The instances of `module`, each as a list of its scopes (compiled.Scope), its own first.

    An instance below another is part of it.
    """
    results: list = []
    instance_of: dict = {}
    for scope in scopes(program):
        if scope.parent in instance_of:
            instance = instance_of[scope.parent]
            instance.append(scope)
        elif scope.kind == "module" and scope.type == module:
            instance = [scope]
            results.append(instance)
        else:
            continue
        instance_of[scope.label] = instance
    return results


def shape(instance):
    """Return what must be equal with and without a bench: scopes, ports and parameters.

    Generated names of unnamed scopes are omitted, since Icarus numbers them through the whole program.
    """
    parts = []
    for place, scope in enumerate(instance):
        names = [scope.name if place else "", scope.type]
        names = ["$" if name.startswith("$") else name for name in names]
        values = [parameter[1:] for parameter in compiled.parameters(scope.text)]
        parts.append((scope.kind, *names, PORT.findall(scope.text), values))
    return parts


def parameters(instance, names):
    """Verilog text that sets an instance's overridable parameters to their values: `.WIDTH(4'b1000), ...`.

    Only those in `names`, or all if it contains `*`. Real numbers are omitted.
    """
    settings = []
    for parameter in compiled.parameters(instance[0].text):
        if parameter.local or not ({parameter.name, "*"} & set(names)):
            continue
        value = ""
        if parameter.kind == "str":
            value = parameter.value
        if parameter.number:
            is_signed, bits = parameter.number
            base = "sb" if is_signed else "b"
            value = f"{len(bits)}'{base}{bits}"
        if value:
            settings.append(f".{parameter.name}({value})")
    return ", ".join(settings)


def hides_inputs(instance, program):
    """Whether an input may have a net of another name, as in `module m(.a(b))`: beside a bench, none of its
    name is driven."""
    text = instance[0].text
    free = _FREE.findall(program)
    inputs = {name for direction, _, name in PORT.findall(text) if direction == "INPUT"}
    nets = {name for name, _, source, _ in _NET.findall(text) if source not in free}
    return not inputs <= nets


def port_complaint(instance, text, program, expected, connected):
    """Return why an instance could reach through its ports into a bench; None if it cannot.

    `text` is that of a scope which has a net of each port's name, and no other connection. `expected` are the (name,
    direction) of a right design's ports, in order, and may be empty; `connected` tells how the bench
    connects them: `named`, `positional` or `wildcard`. Nothing in the design may drive an input or join it
    with another: Icarus merges a port and its connection into one net.
    """
    ports = PORT.findall(instance[0].text)
    if len({name for _, _, name in ports}) < len(ports):
        return "two ports of the answer have one name"
    directions = dict(expected)
    for place, (direction, _, name) in enumerate(ports):
        if connected == "positional":
            right = None
            if place < len(expected):
                _, right = expected[place]
        elif connected == "wildcard" and expected and name not in directions:
            return f"the answer has a port {name} that was not asked for"
        else:
            right = directions.get(name)
        if direction.lower() != right and (right or direction == "INOUT"):
            difference = ""
            if right:
                difference = f", not an {right}"
            return f"the answer's port {name} is an {direction.lower()}{difference}"
    for name in driven_inputs(text, program, ports):
        return f"the answer drives its own input {name}, or joins it with another"
    return None


def driven_inputs(text, program, ports):
    """Names of the inputs among `ports` that a design drives or joins with another. `text` is that of the
    design's own scope, whose ports are unconnected (a root, or an instance without connections), or of a
    scope with a wire for each port.
    """
    arrays = dict(_ARRAY.findall(text))
    nets: dict = {}
    for name, array, source, drivers in _NET.findall(text):
        name = arrays.get(array) if array else name
        nets.setdefault(name, []).append((source, drivers))
    free = {(label, "1" if label[0] == "L" else "0") for label in _FREE.findall(program)}
    earlier: set = set()
    names = []
    for direction, _, name in ports:
        if direction == "INPUT":
            sources = {net[0] for net in nets.get(name, ()) if net in free}
            if not sources or len(sources) < len(nets[name]) or sources & earlier:
                names.append(name)
            earlier |= sources
    return names


def root_complaints(program, top="", watched=None):
    """Return reasons not to run a program with a harness that drives the roots from outside; empty if it may be run.

    If a design drives its own input, the harness reads back the design's value. `watched`, if known, are the names of
    (inputs, outputs) in the text of the module `top`, which the grader watches.
    """
    complaints = []
    for root in compiled.roots(scopes(program)):
        ports = PORT.findall(root.text)
        for name in driven_inputs(root.text, program, ports):
            complaints.append(
                f"{root.name} drives its own input {name}, or joins it with another"
            )
        if watched is not None and root.name == top:
            names: dict = {"INPUT": set(), "OUTPUT": set()}
            for direction, _, name in ports:
                names.setdefault(direction, set()).add(_ESCAPED.sub(r"\1", name))
            if [names["INPUT"], names["OUTPUT"]] != list(map(set, watched)):
                complaints.append(
                    f"{top} has other ports for the simulator than its text shows"
                )
    return complaints
