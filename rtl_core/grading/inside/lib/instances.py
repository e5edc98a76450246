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
    arrays = dict(_ARRAY.findall(text))
    nets: dict = {}
    for name, array, source, drivers in _NET.findall(text):
        nets.setdefault(arrays.get(array) if array else name, []).append((source, drivers))
    floating = set(_FLOATING.findall(program))
    taken: set = set()
    for direction, name in ports:
        if direction == "INPUT":
            sources = {source for source, drivers in nets.get(name, ()) if drivers == "0" and source in floating}
            if not sources or len(sources) < len(nets[name]) or sources & taken:
                return f"the answer drives its own input {name}, or joins it with another"
            taken |= sources
    return None
