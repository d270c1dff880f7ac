"""Pass 9: phases of sites: the strongly connected components of "takes results of", in topological order.

The recorder derives the same from what is recorded, after its first graph; this is for the first graph.
Sites on a recurrence share a phase; what feeds it comes before, what only reads it comes after.
"""

from __future__ import annotations

from .sites import Sites

BEFORE, WITHIN, AFTER, APART = "before", "within", "after", "apart"


def phases(sites: Sites) -> list[int]:
    """Phase of each site: equal on a cycle, and larger than the phases of everything it takes from."""
    n = len(sites.all)
    component = components(n, sites.sources)
    level = [0] * (max(component, default=-1) + 1)
    members: dict[int, list[int]] = {}
    for site, number in enumerate(component):
        members.setdefault(number, []).append(site)
    for number in sorted(members):  # components are numbered sources first
        for site in members[number]:
            for source in sites.sources.get(site, ()):
                if component[source] != number:
                    level[number] = max(level[number], level[component[source]] + 1)
    return [level[number] for number in component]


def labels(sites: Sites) -> list[str]:
    """Of each site: before, within or after the recurrences it is connected with, or apart from them."""
    n = len(sites.all)
    component = components(n, sites.sources)
    sizes: dict[int, int] = {}
    for number in component:
        sizes[number] = sizes.get(number, 0) + 1
    cyclic = {s for s in range(n) if sizes[component[s]] > 1 or s in sites.sources.get(s, ())}
    users: dict[int, list[int]] = {}
    for site, sources in sites.sources.items():
        for source in sources:
            users.setdefault(source, []).append(site)
    feeding = _closure(cyclic, sites.sources)
    fed = _closure(cyclic, users)
    result = []
    for site in range(n):
        if site in cyclic:
            result.append(WITHIN)
        elif site in fed:
            result.append(AFTER)
        else:
            result.append(BEFORE if site in feeding else APART)
    return result


def _closure(start: set[int], edges: dict[int, list[int]]) -> set[int]:
    seen, stack = set(start), list(start)
    while stack:
        for other in edges.get(stack.pop(), ()):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def components(n: int, sources: dict[int, list[int]]) -> list[int]:
    """Number of each node's component, sources before what uses them (Tarjan's algorithm, its own stack)."""
    index: list[int] = [-1] * n
    low = [0] * n
    component = [-1] * n
    stack: list[int] = []
    clock = number = 0
    for root in range(n):
        if index[root] >= 0:
            continue
        frames = [(root, iter(sources.get(root, ())))]
        index[root] = low[root] = clock
        clock += 1
        stack.append(root)
        while frames:
            at, rest = frames[-1]
            for other in rest:
                if index[other] < 0:
                    index[other] = low[other] = clock
                    clock += 1
                    stack.append(other)
                    frames.append((other, iter(sources.get(other, ()))))
                    break
                if component[other] < 0:
                    low[at] = min(low[at], index[other])
            else:
                frames.pop()
                if frames:
                    low[frames[-1][0]] = min(low[frames[-1][0]], low[at])
                if low[at] == index[at]:
                    while True:
                        member = stack.pop()
                        component[member] = number
                        if member == at:
                            break
                    number += 1
    return component
