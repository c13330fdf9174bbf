"""Reads pairs of scripts and says where two are not the same program but for names."""
import builtins
import dis
import json
import sys


def code(path, a, b, names, out):
    if a.co_code != b.co_code or len(a.co_names) != len(b.co_names) or a.co_nlocals != b.co_nlocals:
        out.append(f"{path}: other instructions")
        return
    for x, y in zip(dis.get_instructions(a), dis.get_instructions(b)):
        kind = "global" if x.opname.endswith(("_GLOBAL", "_NAME")) else "attribute" if x.opname.endswith(("_ATTR", "_METHOD")) else None
        if kind:
            names.setdefault((kind, x.argval), set()).add(y.argval)
            names.setdefault((kind + " in the other", y.argval), set()).add(x.argval)
            if kind == "global" and x.argval != y.argval and (hasattr(builtins, x.argval) or hasattr(builtins, y.argval)):
                out.append(f"{path}: {x.argval} is {y.argval}")
    inner = [[c for c in o.co_consts if hasattr(c, "co_code")] for o in (a, b)]
    for x, y in zip(*inner):
        code(path + "." + x.co_name, x, y, names, out)


for n, (a, b) in enumerate(json.load(sys.stdin)):
    out, names = [], {}
    try:
        code("script", compile(a, "a", "exec"), compile(b, "b", "exec"), names, out)
    except SyntaxError as e:
        out.append(f"line {e.lineno}: {e.msg}")
    out += [f"{kind} {name} is {' and '.join(sorted(others))}" for (kind, name), others in names.items() if len(others) > 1]
    if out:
        print(json.dumps([n, out]))
