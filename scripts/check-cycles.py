#!/usr/bin/env python3
"""Import cycles between the modules of each crate: none may hold more than 15 % of its crate's lines.

A module is a file. It imports another one when a path in it (`use crate::…`, `super::…`, `self::…`, or the same inside of
an expression) leads there; a parent's `mod child;` is none. Tests (`#[cfg(test)] mod …` at the end of a file, files called
tests.rs, directories called tests) do not count.

  scripts/check-cycles.py            fails when a cycle is larger
  scripts/check-cycles.py --list     the largest cycle of each crate, with its modules
"""

import pathlib
import re
import sys

import rust_source

LIMIT = 0.15
ROOT = pathlib.Path(__file__).resolve().parent.parent


def modules(source):
    """The modules of a crate: their path as a tuple of names, and their text without comments, strings and tests."""
    found = {}
    for file, text in rust_source.modules(source):
        parts = file.relative_to(source).with_suffix("").parts
        if "bin" in parts[:1]:
            continue
        if parts[-1] in ("mod", "lib", "main"):
            parts = parts[:-1]
        lines = text.count("\n")
        text = re.sub(r"//[^\n]*", "", text)
        text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
        found[parts] = (text, lines)
    return found


def expand(text):
    """The paths that a text names, braces of `use` taken apart."""
    for match in re.finditer(r"\buse\s+([^;]+);", text):
        yield from braces(re.sub(r"\s+", "", re.sub(r"\bas\s+\w+", "", match.group(1))))
    for match in re.finditer(r"\b(?:crate|super|self)(?:::\w+)+", text):
        yield match.group(0)


def braces(tree):
    if "{" not in tree:
        yield tree
        return
    at = tree.index("{")
    depth, begin = 0, at + 1
    for i in range(at, len(tree)):
        if tree[i] == "{":
            depth += 1
        elif tree[i] == "}":
            depth -= 1
        if (tree[i] == "," and depth == 1) or depth == 0:
            part = tree[begin:i]
            if part:
                yield from braces(tree[:at] + part)
            begin = i + 1
        if depth == 0:
            return


def exports(of, text):
    """The names that a module hands on, and the paths that they have in it."""
    handed = {}
    for match in re.finditer(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", text):
        for path in braces(re.sub(r"\s+", " ", match.group(1)).replace(", ", ",").replace("{ ", "{").replace(" }", "}")):
            path, _, alias = path.strip().partition(" as ")
            handed[(alias or path).split("::")[-1].strip()] = path.split("::")
    return handed


def resolve(of, names, known, handed, depth=0):
    """The module in which something is that is called this in another one, or None."""
    if names[0] == "crate":
        at, names = (), names[1:]
    elif names[0] in ("self", "super"):
        at = of
        while names and names[0] in ("self", "super"):
            at = at[:-1] if names[0] == "super" else at
            names = names[1:]
    elif of + (names[0],) in known:
        at = of
    else:
        return None
    while names and at + (names[0],) in known:
        at, names = at + (names[0],), names[1:]
    if names and depth < 8 and (path := handed[at].get(names[0])):
        return resolve(at, path, known, handed, depth + 1) or at
    return at


def imports(of, text, known, handed):
    for path in expand(text):
        at = resolve(of, path.split("::"), known, handed)
        if at is not None and at != of:
            yield at


def cycles(graph):
    """Strongly connected components (Tarjan), without recursion limits to speak of."""
    sys.setrecursionlimit(10_000)
    index, low, stack, on, out = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while True:
                other = stack.pop()
                on.discard(other)
                component.append(other)
                if other == node:
                    break
            out.append(component)

    for node in graph:
        if node not in index:
            visit(node)
    return out


def main():
    wants_list = sys.argv[1:] == ["--list"]
    too_large = False
    for source in sorted(ROOT.glob("crates/*/src")):
        known = modules(source)
        handed = {of: exports(of, text) for of, (text, _) in known.items()}
        graph = {of: set(imports(of, text, known, handed)) for of, (text, _) in known.items()}
        lines = {of: count for of, (_, count) in known.items()}
        whole = sum(lines.values())
        largest = max((c for c in cycles(graph) if len(c) > 1), key=lambda c: sum(lines[m] for m in c), default=[])
        part = sum(lines[m] for m in largest) / max(whole, 1)
        name = source.parent.name
        if wants_list:
            print(f"{name}: {len(known)} modules, {whole} lines; largest cycle {len(largest)} modules, {part:.0%}")
            for module in sorted(largest):
                inside = sorted("::".join(m) or "lib" for m in graph[module] if m in largest)
                print(f"    {'::'.join(module) or 'lib'} ({lines[module]}) -> {', '.join(inside)}")
        if part > LIMIT:
            too_large = True
            if not wants_list:
                print(
                    f"{name}: {len(largest)} modules import each other in a circle, {part:.0%} of its lines; "
                    f"at most {LIMIT:.0%} (scripts/check-cycles.py --list)",
                    file=sys.stderr,
                )
    return 1 if too_large and not wants_list else 0


if __name__ == "__main__":
    sys.exit(main())
