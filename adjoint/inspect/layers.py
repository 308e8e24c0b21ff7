"""Layered drawing of a directed acyclic graph (Sugiyama, Tagawa, Toda 1981): ranks by longest path,
order within a rank by barycenters, places by averages of neighbours."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def layout(vertices: Sequence[Any], operands: Mapping[Any, Sequence[Any]],
           width: Mapping[Any, float], gap: float
           ) -> tuple[dict[Any, float], dict[Any, int], dict[tuple[Any, Any], list[float]]]:
    """(centre, rank) of every vertex, and for edges longer than one rank where they pass the rows
    between: these passages take part as narrow vertices, so that no edge crosses a box."""
    rank = ranks(vertices, operands)
    wide, below = dict(width), {v: list(operands[v]) for v in vertices}
    every, routes = list(vertices), {}
    for b in vertices:
        for a in operands[b]:
            chain = [("pass", a, b, r) for r in range(rank[a] + 1, rank[b])]
            if not chain:
                continue
            below[b][below[b].index(a)] = chain[-1]
            for i, key in enumerate(chain):
                rank[key], wide[key] = key[3], 10.0
                below[key] = [chain[i - 1] if i else a]
            every += chain
            routes[a, b] = chain
    rows = order(every, below, rank)
    x = place(rows, below, wide, gap)
    return x, rank, {edge: [x[key] for key in chain] for edge, chain in routes.items()}


def ranks(vertices: Sequence[Any], operands: Mapping[Any, Sequence[Any]]) -> dict[Any, int]:
    """Distance from the sources along the longest path; sources sit just above their first user.

    >>> ranks(["a", "b", "c"], {"a": [], "b": ["a"], "c": ["a", "b"]})
    {'a': 0, 'b': 1, 'c': 2}
    """
    rank: dict[Any, int] = {}
    for v in vertices:
        rank[v] = max((rank[a] + 1 for a in operands[v]), default=0)
    users: dict[Any, list[int]] = {}
    for v in vertices:
        for a in operands[v]:
            users.setdefault(a, []).append(rank[v])
    for v in vertices:
        if not operands[v] and v in users:
            rank[v] = min(users[v]) - 1
    return rank


def order(vertices: Sequence[Any], operands: Mapping[Any, Sequence[Any]], rank: Mapping[Any, int],
          sweeps: int = 8) -> list[list[Any]]:
    """Rows of vertices with few crossings."""
    rows: list[list[Any]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for v in vertices:
        rows[rank[v]].append(v)
    users: dict[Any, list[Any]] = {v: [] for v in vertices}
    for v in vertices:
        for a in operands[v]:
            users[a].append(v)
    at = {v: i - len(row) / 2 for row in rows for i, v in enumerate(row)}
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            beside = operands if down else users
            row.sort(key=lambda v: (sum(at[n] for n in beside[v]) / len(beside[v])
                                    if beside[v] else at[v]))
            for i, v in enumerate(row):
                at[v] = i - len(row) / 2
    return rows


def place(rows: Sequence[Sequence[Any]], operands: Mapping[Any, Sequence[Any]],
          width: Mapping[Any, float], gap: float) -> dict[Any, float]:
    """Centre of every vertex: near the mean of its neighbours, never overlapping in a row.

    Sources stand where their users are and make room for what is computed: with a vote of their own
    they would push a chain aside in each row, and it would lean. Rows are gone through downwards
    and upwards in turn, as often as a long chain needs to stand straight and the time allows.
    """
    neighbours: dict[Any, list[Any]] = {v: list(operands[v]) for row in rows for v in row}
    for v in list(neighbours):
        for a in operands[v]:
            if v not in neighbours[a]:
                neighbours[a].append(v)
    computed = {v: [n for n in near if operands[n]] or near for v, near in neighbours.items()}
    votes = {v: 1.0 if operands[v] else 0.01 for v in neighbours}
    x: dict[Any, float] = {}
    for row in rows:
        _spread(row, [0.0] * len(row), votes, x, width, gap)
    for sweep in range(min(12 + 2 * len(rows), max(12, 40_000 // max(len(x), 1)))):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [sum(x[n] for n in computed[v]) / len(computed[v]) if computed[v]
                      else x[v] for v in row]
            _spread(row, wanted, votes, x, width, gap)
    least = min((x[v] - width[v] / 2 for row in rows for v in row), default=0.0)
    return {v: c - least for v, c in x.items()}


def _spread(row: Sequence[Any], wanted: Sequence[float], votes: Mapping[Any, float],
            x: dict[Any, float], width: Mapping[Any, float], gap: float) -> None:
    """Put a row as near to `wanted` as its order and widths allow: blocks merge where they meet
    and sit at the mean of what their members want, by their votes (pool adjacent violators)."""
    blocks: list[tuple[float, float, list[Any], list[float]]] = []  # sum, votes, members, offsets
    for v, w in zip(row, wanted, strict=True):
        total, count, members, offsets = w * votes[v], votes[v], [v], [0.0]
        while blocks:
            p_total, p_count, p_members, p_offsets = blocks[-1]
            step = width[p_members[-1]] / 2 + gap + width[members[0]] / 2
            if p_total / p_count + p_offsets[-1] + step <= total / count + 1e-9:
                break
            shift = p_offsets[-1] + step
            offsets = p_offsets + [o + shift for o in offsets]
            total, count = p_total + total - count * shift, p_count + count
            members = p_members + members
            blocks.pop()
        blocks.append((total, count, members, offsets))
    for total, count, members, offsets in blocks:
        for v, o in zip(members, offsets, strict=True):
            x[v] = total / count + o
