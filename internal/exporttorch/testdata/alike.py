"""Reads pairs of scripts and says where two are not the same program but for names."""
import builtins
import dis
import json
import sys

ENDINGS = {"_GLOBAL": "global", "_NAME": "global", "_ATTR": "attribute", "_METHOD": "attribute"}


def instructions(c):
    return [i for i in dis.get_instructions(c) if i.opname not in ("EXTENDED_ARG", "CACHE")]


def code(path, a, b, names, out):
    x, y = instructions(a), instructions(b)
    if [i.opname for i in x] != [i.opname for i in y] or a.co_nlocals != b.co_nlocals:
        out.append(f"{path}: other instructions")
        return
    for i, k in zip(x, y):
        kind = next((kind for ending, kind in ENDINGS.items() if i.opname.endswith(ending)), None)
        if kind == "global" and path != "script" and not a.co_flags & 1:
            kind = "attribute"  # the body of a class
        if kind:
            names.setdefault((kind, i.argval), set()).add(k.argval)
        if kind == "global":
            names.setdefault(("global in the other", k.argval), set()).add(i.argval)
            if i.argval != k.argval and (hasattr(builtins, i.argval) or hasattr(builtins, k.argval)):
                out.append(f"{path}: {i.argval} is {k.argval}")
        elif not kind and i.arg != k.arg and not isinstance(i.argval, str) and i.opcode not in dis.hasjrel:
            out.append(f"{path}: {i.opname} {i.argval} is {k.argval}")
        elif i.opcode in dis.haslocal and i.arg != k.arg:
            out.append(f"{path}: the variable {i.argval} is {k.argval}")
    inner = [[c for c in o.co_consts if hasattr(c, "co_code")] for o in (a, b)]
    for c, d in zip(*inner):
        code(path + "." + c.co_name, c, d, names, out)


for n, (a, b) in enumerate(json.load(sys.stdin)):
    out, names = [], {}
    try:
        code("script", compile(a, "a", "exec"), compile(b, "b", "exec"), names, out)
    except SyntaxError as e:
        out.append(f"line {e.lineno}: {e.msg}")
    out += [f"{kind} {name} is {' and '.join(sorted(others))}" for (kind, name), others in names.items() if len(others) > 1]
    if out:
        print(json.dumps([n, out]))
