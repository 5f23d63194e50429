"""A statement: its text, sqlglot's tree, and the position in the text of each node of the tree.

sqlglot records positions for names, constants and calls only.  Any other node reaches from its first to
its last leaf, extended by the tokens that belong to it: ``IN (…)`` to its closing parenthesis, ``-x`` to
its sign.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import Token, TokenType, exp

from millpond.errors import Position, SqlError, one_line

_FUNCTIONS = (
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median, exp.CountIf, exp.LogicalAnd, exp.LogicalOr),
    *(exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevSamp, exp.StddevPop),
    *(exp.Corr, exp.CovarPop, exp.CovarSamp, exp.ArgMin, exp.ArgMax, exp.AnyValue),
    *(exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.Quantile, exp.ApproxQuantile),
    *(exp.PercentileCont, exp.PercentileDisc, exp.ArrayAgg, exp.ArrayUniqueAgg, exp.ApproxDistinct),
)
# Nodes that are aggregates: functions, and clauses that belong to one.
AGGREGATES = (*_FUNCTIONS, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
_LEAVES = (exp.Identifier, exp.Literal, exp.Star, *_FUNCTIONS)
# Functions for whose names sqlglot records no position.
_UNPLACED: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Extract: ("EXTRACT",),
    exp.ArgMin: ("MIN_BY",),
    exp.ArgMax: ("MAX_BY",),
    exp.Quantile: ("PERCENTILE",),
    exp.ApproxQuantile: ("PERCENTILE_APPROX", "APPROX_PERCENTILE"),
    exp.PercentileCont: ("PERCENTILE_CONT",),
    exp.PercentileDisc: ("PERCENTILE_DISC",),
}
_CASTS = (exp.Cast, exp.TryCast)
_WORDLESS: dict[type[exp.Expr], tuple[TokenType, ...]] = {  # leaves for which sqlglot records no position
    exp.Boolean: (TokenType.TRUE, TokenType.FALSE),
    exp.Null: (TokenType.NULL,),
    exp.Literal: (TokenType.NUMBER,),  # .5
}
# The deepest tree that is read; a chain of AND, OR or UNION counts as one level.
MAX_DEPTH = 150
_CHAINS = (exp.And, exp.Or, exp.Union)

# The key of the starts of tokens that are no longer in a tree, because it has been rewritten.
READ = "read"

Span = tuple[int, int]  # the first and the last token


def position(text: str, offset: int) -> Position:
    """The line and column of an offset in the text.

    >>> position("SELECT\\n  A", 9)
    Position(line=2, column=3)
    """
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


@dataclass
class Statement:
    """A statement as typed and as parsed."""

    text: str
    tokens: list[Token]
    tree: exp.Expr
    leaves: set[int] = field(default_factory=set)  # tokens that are names, constants or aggregates
    time_zone: str = "UTC"  # of the session in which the statement runs
    _spans: dict[int, Span] = field(default_factory=dict)
    _made: list[exp.Expr] = field(default_factory=list)  # nodes with a place, kept so that their IDs stay

    def __post_init__(self) -> None:
        for query in self.tree.find_all(exp.Query):  # WITH comes first in the text, but last in the tree
            if query.args.get("with_"):
                query.args = {"with_": query.args.pop("with_"), **query.args}
        nodes = list(self.tree.walk(bfs=False))
        own = self._own_tokens(nodes)
        self._closing = self._parentheses()
        depth: dict[int, int] = {}
        for node in reversed(nodes):  # children come before their parents
            key = id(node)
            if key in own:
                self._grow(key, (own[key], own[key]))
            if key in self._spans:
                self._spans[key] = self._widen(node, *self._spans[key], own.get(key))
                if not isinstance(node, exp.With):
                    self._grow(id(node.parent), self._spans[key])
            deep = depth.get(key, 0) + (not (isinstance(node, _CHAINS) and isinstance(node.parent, _CHAINS)))
            if deep > MAX_DEPTH:
                raise SqlError(
                    f"an expression is nested more than {MAX_DEPTH} levels deep",
                    self.at(node),
                    "simplify it",
                )
            depth[id(node.parent)] = max(depth.get(id(node.parent), 0), deep)

    # --- the text of a node ----------------------------------------------------------------------------

    def slice(self, node: exp.Expr) -> str:
        """The user's own spelling of a node."""
        first, last = self.span(node)
        return self.text[self.tokens[first].start : self.tokens[last].end + 1]

    def slice_with_signs(self, node: exp.Expr) -> str:
        """The user's own spelling of a node, with the + signs in front of it."""
        first, last = self.span(node)
        return self.text[self.tokens[first - self.pluses(node)].start : self.tokens[last].end + 1]

    def excerpt(self, node: exp.Expr) -> str:
        """The user's own spelling of a node, shortened to one line for a message."""
        return one_line(self.slice(node))

    def at(self, node: exp.Expr) -> Position:
        """The position of a node."""
        return self.token_at(self.span(node)[0])

    def token_at(self, index: int) -> Position:
        """The position of a token."""
        return position(self.text, self.tokens[index].start)

    def word(self, index: int) -> str:
        """A token in upper case, empty beyond the ends; ``GROUP BY`` is one token."""
        return " ".join(self.tokens[index].text.upper().split()) if 0 <= index < len(self.tokens) else ""

    def keyword_at(self, node: exp.Expr, *keywords: str) -> Position:
        """The position of the first of these keywords in or near a node; the node's own if there is none."""
        first, last = self.span(node)
        for index in (*range(first, last + 1), *range(first - 1, -1, -1), *range(last + 1, len(self.tokens))):
            if index not in self.leaves and not set(keywords).isdisjoint(self.word(index).split()):
                return self.token_at(index)
        return self.token_at(first)

    def span(self, node: exp.Expr) -> Span:
        """The first and the last token of a node; of the nearest node above it if it has none of its own."""
        here: exp.Expr | None = node
        while here is not None:
            if id(here) in self._spans:
                return self._spans[id(here)]
            here = here.parent
        return 0, len(self.tokens) - 1

    def has_place(self, node: exp.Expr) -> bool:
        """Whether a node is in the text, or takes the place of one that is."""
        return id(node) in self._spans

    def place(self, made: exp.Expr, written: exp.Expr) -> None:
        """Give a node that takes the place of another one the position of that."""
        self._spans[id(made)] = self.span(written)
        self._made.append(made)

    def copy(self, node: exp.Expr) -> exp.Expr:
        """A copy of a node, each part of which has the position of the original."""
        copied = node.copy()
        for made, written in zip(copied.walk(), node.walk(), strict=True):
            self.place(made, written)
        return copied

    def find_group_after(self, index: int) -> int:
        """The last token of what follows a token: a group in parentheses, or one word."""
        return self._closing.get(index + 1, min(index + 1, len(self.tokens) - 1))

    def find_call_before(self, index: int) -> int:
        """The first token of the call that ends before a token, with FILTER (…) or IGNORE NULLS after it."""
        opening = {last: first for first, last in self._closing.items()}
        last = index - 1
        while self.word(last) in ("NULLS", "IGNORE", "RESPECT"):
            last -= 1
        first = opening.get(last, last) - 1
        return self.find_call_before(first) if self.word(first) == "FILTER" else max(first, 0)

    def slice_over(self, node: exp.Expr) -> str:
        """The user's own spelling of a window function, from its name to the end of OVER."""
        at, _ = self.span(node)
        found = []
        for index in range(len(self.tokens)):
            if self.word(index) == "OVER":
                first, last = self.find_call_before(index), self.find_group_after(index)
                found += [(last - first, first, last)] if first <= at <= last else []
        _, first, last = min(found, default=(0, at, at))
        return self.text[self.tokens[first].start : self.tokens[last].end + 1]

    def pluses(self, node: exp.Expr) -> int:
        """The number of + signs in front of a value; sqlglot leaves them out of the tree."""
        return 0 if isinstance(node, exp.Binary) else self._pluses(self.span(node)[0])

    def _pluses(self, first: int) -> int:
        count = 0
        while self.word(first - 1 - count) == "+":
            count += 1
        before = first - 1 - count
        is_binary = before in self.leaves or self.word(before) in (")", "NULL", "TRUE", "FALSE")
        return count - is_binary if count else 0

    # --- finding the positions ---------------------------------------------------------------------------

    def _own_tokens(self, nodes: list[exp.Expr]) -> dict[int, int]:
        """The token of each leaf; one without a position takes the next matching token."""
        starts: dict[int, int] = {}
        for index, token in enumerate(self.tokens):
            starts.setdefault(token.start, index)
        own = {id(node): starts[node.meta["start"]] for node in nodes if node.meta.get("start") in starts}
        placed = {own[id(node)] for node in nodes if id(node) in own and isinstance(node, _LEAVES)}
        reached = -1
        for node in nodes:
            if id(node) in own:
                reached = max(reached, own[id(node)])
            elif type(node) in _WORDLESS:
                for index in range(reached + 1, len(self.tokens)):
                    if index in placed:
                        break
                    if self.tokens[index].token_type in _WORDLESS[type(node)]:
                        own[id(node)] = reached = index
                        break
        # The tokenizer splits 1L into three tokens with the place of the one.
        kinds = (*_LEAVES, exp.Boolean, exp.Null)
        at_leaf = {self.tokens[own[id(n)]].start for n in nodes if id(n) in own and isinstance(n, kinds)}
        at_leaf |= self.tree.meta.get(READ, set())
        self.leaves = {index for index, token in enumerate(self.tokens) if token.start in at_leaf}
        return own

    def _parentheses(self) -> dict[int, int]:
        closing: dict[int, int] = {}
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.token_type is TokenType.L_PAREN:
                opened.append(index)
            elif token.token_type is TokenType.R_PAREN and opened:
                closing[opened.pop()] = index
        return closing

    def _grow(self, key: int, span: Span) -> None:
        first, last = self._spans.get(key, span)
        self._spans[key] = min(first, span[0]), max(last, span[1])

    def _widen(self, node: exp.Expr, first: int, last: int, own: int | None) -> Span:
        if isinstance(node, exp.Literal) and not node.meta and self.word(first - 1) == ".":
            return first - 1, last
        is_leaf = isinstance(node, exp.Identifier | exp.Literal)
        if own is not None and not is_leaf and own + 1 in self._closing:  # a call
            return first, max(last, self._closing[own + 1])
        if isinstance(node, exp.Paren | exp.Subquery | exp.Tuple) and self._closing.get(first - 1, -1) > last:
            return first - 1, self._closing[first - 1]
        if isinstance(node, exp.In) and self.word(last + 1) == ")":
            return first, last + 1
        if isinstance(node, exp.Neg) or (isinstance(node, exp.Not) and self.word(first - 1) in ("NOT", "!")):
            return max(first - 1, 0), last
        if isinstance(node, exp.Select):
            return next((i for i in range(first, -1, -1) if self.word(i) == "SELECT"), first), last
        if isinstance(node, _CASTS):
            return self._cast(first, last)
        if own is None and type(node) in _UNPLACED:
            return self._call(_UNPLACED[type(node)], first, last)
        if isinstance(node, exp.WithinGroup | exp.Filter):
            return first, min((end for end in self._closing.values() if end > last), default=last)
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            return first, last + sum(self.word(last + i) in ("IGNORE", "RESPECT", "NULLS") for i in (1, 2))
        if isinstance(node, exp.Case):
            return self._case(first, last)
        if isinstance(node, exp.Interval):
            return self._interval(node, first, last)
        if isinstance(node, exp.Func) and first - 1 in self._closing and self._is_name(node, first - 2):
            return first - 2, max(last, self._closing[first - 1])
        if isinstance(node, exp.Binary | exp.Predicate):
            return first - self._pluses(first), last
        return first, last

    def _call(self, names: tuple[str, ...], first: int, last: int) -> Span:
        """The call of a function with one of these names that contains the tokens."""
        for index in range(first - 1, -1, -1):
            if self.word(index) in names and self._closing.get(index + 1, -1) > last:
                self.leaves.add(index)
                return index, self._closing[index + 1]
        return first, last

    def _is_name(self, node: exp.Func, index: int) -> bool:
        """Whether a token before a parenthesis is the name of a call, for which sqlglot has no position."""
        if isinstance(node, exp.Binary | exp.Predicate):
            return self.word(index) in node.sql_names()
        return self.word(index).isidentifier() and index not in self.leaves

    def _case(self, first: int, last: int) -> Span:
        """``CASE … END``."""
        for before in (first - 1, first - 2):
            if self.word(before) == "CASE":
                return before, last + (self.word(last + 1) == "END")
        return first, last

    def _interval(self, node: exp.Interval, first: int, last: int) -> Span:
        """``INTERVAL 1 HOUR``, ``INTERVAL '1:30' HOUR TO MINUTE``; the second of two units has no keyword."""
        before = first - 1 - (self.word(first - 1) in ("-", "+"))
        unit = node.args.get("unit")
        is_span = isinstance(unit, exp.IntervalSpan)
        name = (unit.this if is_span else unit).name if unit is not None else ""
        last += self.word(last + 1) == name.upper() != ""
        last += 2 * (is_span and self.word(last + 1) == "TO")
        self.leaves.add(last)  # a + after it is no sign
        return before if self.word(before) == "INTERVAL" else first, last

    def _cast(self, first: int, last: int) -> Span:
        """``CAST(x AS t)``, ``t 'x'``, or a number with its suffix."""
        if last + 2 < len(self.tokens) and self.tokens[first].start == self.tokens[last + 1].start:
            return first, last + 2
        if self.word(last + 1) == "::":
            return first, last
        if first - 1 in self._closing:
            return max(first - 2, 0), self._closing[first - 1]
        return max(first - 1, 0), last
