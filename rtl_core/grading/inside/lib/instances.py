"""The instances of one module in a compiled Icarus program (a `vvp` file), and what their ports can do. Standard library only.

A test bench and a design that are simulated together are two programs in one. These functions tell the design's part from
the bench's, so that a design compiled alone can be compared with the same design beside its bench.
"""

import re

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_SOURCE = r"(?:-?\d+ -?\d+, )?(\S+); +(?:alias, )?(\d+) drivers"
_SCOPE = re.compile(rf"^(S_\w+) \.scope (\w+), {_TEXT} {_TEXT} \d+ \d+(?:, \d+ \d+ \d+, (S_\w+))?.*;$", re.M)
_PORT = re.compile(rf"^ +\.port_info \d+ /(\w+) +\d+ {_TEXT}", re.M)
_PARAMETER = re.compile(rf"^P_\w+ \.param/(\w+) {_TEXT} (\d+) \d+ \d+, (.*);$", re.M)
_NET = re.compile(rf"^v\w+ \.net\S* (?:{_TEXT}|(v\w+) \d+), {_SOURCE}", re.M)
_ARRAY = re.compile(rf"^(v\w+) \.array {_TEXT}", re.M)
_FLOATING = re.compile(r"^(o\w+) \.functor BUFZ ", re.M)
_NUMBER = re.compile(r"(\+?)C4<([01xz]+)>")


def instances(program, module):
    """The instances of `module`, each as a list of scopes, its own first: [(kind, name, type, text), ...].

    `text` is what the program says of the scope itself: ports, parameters, nets. An instance below another is part of it.
    """
    heads = list(_SCOPE.finditer(program))
    found: list = []
    within: dict = {}
    for match, following in zip(heads, [*heads[1:], None], strict=True):
        label, kind, name, type_, parent = match.groups()
        end = following.start() if following else program.find("\n    .scope ", match.end())
        scope = (kind, name, type_, program[match.end() : end if end >= 0 else None])
        if parent in within:
            within[label] = within[parent]
            within[label].append(scope)
        elif kind == "module" and type_ == module:
            within[label] = [scope]
            found.append(within[label])
    return found


def shape(instance):
    """What must be the same alone and beside a bench: scopes, ports and parameters.

    The names that Icarus gives to nameless scopes count through the whole program, so they are left out.
    """
    compared = []
    for place, (kind, name, type_, text) in enumerate(instance):
        names = [word if word[:1] != "$" else "$" for word in (name if place else "", type_)]
        compared.append((kind, *names, _PORT.findall(text), _PARAMETER.findall(text)))
    return compared


def parameters(instance, names):
    """Verilog text that sets an instance's overridable parameters to the values they have: `.WIDTH(4'b1000), ...`.

    Only those in `names`, all if `*` is one of them. Real numbers are left out.
    """
    given = []
    for kind, name, local, value in _PARAMETER.findall(instance[0][3]):
        bits = _NUMBER.fullmatch(value)
        if local == "0" and (name in names or "*" in names) and (bits or kind == "str"):
            literal = f"{len(bits[2])}'{'s' if bits[1] else ''}b{bits[2]}" if bits else value
            given.append(f".{name}({literal})")
    return ", ".join(given)


def port_complaint(instance, program, expected, connected):
    """Why an instance whose ports are open could reach through them into a bench; None when it cannot.

    `expected` are the (name, direction) that a right design has, in order, and may be empty; `connected` says how the
    bench connects them: `named`, `positional` or `wildcard`. An input must be a net that nothing in the design drives,
    pulls or joins with another input: Icarus makes a port and what is connected to it one net.
    """
    text = instance[0][3]
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
