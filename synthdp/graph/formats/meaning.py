"""What the attributes of nodes and links say: which node is unseen, and what a link is.

All formats share it. An attribute that decides either is understood, or the file is refused; every
other one, such as a colour, is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from synthdp.errors import SynthdpError

Attributes = Mapping[str, str]
"""By name, in lower case."""

UNSEEN = ("latent", "unobserved", "latents", "unmeasured")  # DAGitty has two, pgmpy the third
SEEN = ("observed", "measured")  # DoWhy has the first
NODE_TYPES = ("type", "node_type", "nodetype")
DOWHY = "Unobserved Confounders"  # the label of the node that DoWhy adds
TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no")

DIRECTIONS = {"->": "forward", "<-": "back", "--": "none", "<->": "both"}
"""By link: Graphviz's word for it."""
CIRCLES = ("@->", "<-@", "--@", "@--", "-@-", "@-@", "o->", "<-o", "o-o", "o--", "--o")
ROUND = ("odot", "circle", "white_circle", "transparent_circle")
PLAIN = ("none", "line", "tail")
POINTED = (
    *("normal", "vee", "open", "empty", "onormal"),
    *("halfopen", "lnormal", "rnormal", "lvee", "rvee"),
    *("arrow", "standard", "delta", "plain"),  # causaliq and yEd
)
TYPES = {
    **{kind: "->" for kind in ("directed", "->", "-->")},
    **{kind: "<-" for kind in ("<-", "<--")},
    **{kind: "--" for kind in ("undirected", "-", "--", "---")},
    **{kind: "<->" for kind in ("bidirected", "<->")},
}
CIRCLE_HINT = (
    "give one graph: turn each such link into ->, <-, -- (direction unknown) or <-> (unseen common"
    " cause)"
)
_BY_ENDS = {(False, True): "->", (True, False): "<-", (False, False): "--", (True, True): "<->"}


def is_unseen(name: str, attributes: Attributes, *, file: str, place: Place | None) -> bool:
    """Whether a node is no column, but an unseen common cause.

    Raises:
        GraphFileError: an attribute decides it, and its value is not known.
    """
    found = attributes.get("label") == DOWHY
    for keys, yes, no in ((UNSEEN, TRUE, FALSE), (SEEN, FALSE, TRUE)):
        for key in keys:
            value = attributes.get(key, no[0]).lower()
            if value not in (*yes, *no):
                raise mistake(
                    file,
                    place,
                    f"node {name!r} has {key}={value!r}: is it a column, or unseen?",
                    hint=f"one of {', '.join((*TRUE, *FALSE))}",
                )
            found = found or value in yes
    if "invis" in attributes.get("style", ""):
        raise mistake(
            file,
            place,
            f"node {name!r} is not drawn: is it a column?",
            hint="delete it, or its style",
        )
    return found or any(attributes.get(key, "").lower() in UNSEEN for key in NODE_TYPES)


def link_of(mark: str, attributes: Attributes, *, file: str, place: Place | None) -> str:
    """`->`, `<-`, `--` (direction unknown) or `<->` (unseen common cause); "" if it is not drawn.

    Raises:
        GraphFileError: an attribute decides it, and its value is not known; or a circle, which
            stands for several graphs.
    """
    if "invis" in attributes.get("style", ""):
        return ""
    for key in ("edgetype", "edge_type", "type"):
        told = attributes.get(key, "").lower()
        if told and key != "type" and told not in (*TYPES, *CIRCLES):
            hint = f"one of {', '.join(TYPES)}"
            raise mistake(file, place, f"{key}={told!r} of a link", hint=hint)
        mark = TYPES.get(told, told if told in CIRCLES else mark)
    if mark in CIRCLES:
        message = f"a link {mark} with a circle stands for several graphs"
        raise mistake(file, place, message, hint=CIRCLE_HINT)
    for key in ("lhead", "ltail"):
        if key in attributes:
            message = f"{key}={attributes[key]!r}: a link that ends at a whole cluster"
            hint = "links join columns; write { a b } for several"
            raise mistake(file, place, message, hint=hint)
    ends = {"arrowtail": "sourceendpoint", "arrowhead": "targetendpoint"}  # the latter of causaliq
    way = "both" if attributes.keys() & ends.values() else DIRECTIONS[mark]
    way = attributes.get("dir", way).lower()
    if way not in DIRECTIONS.values():
        hint = f"one of {', '.join(DIRECTIONS.values())}"
        raise mistake(file, place, f"dir={way!r} of a link", hint=hint)
    tail, head = (_is_pointed((*end,), attributes, file=file, place=place) for end in ends.items())
    if tail and "arrowtail" in attributes and "dir" not in attributes and way == "forward":
        message = "an arrowtail, which is drawn with dir=back or dir=both alone"
        raise mistake(file, place, message, hint="say which with dir, or delete arrowtail")
    return _BY_ENDS[tail and way in ("back", "both"), head and way in ("forward", "both")]


def _is_pointed(
    keys: tuple[str, ...], attributes: Attributes, *, file: str, place: Place | None
) -> bool:
    """Whether an end of a link is an arrow, else it is plain. Unless told it is an arrow."""
    for key in keys:
        shape = attributes.get(key, "normal").lower()
        if shape in ROUND:
            message = f"a link with a circle ({key}={shape}) stands for several graphs"
            raise mistake(file, place, message, hint=CIRCLE_HINT)
        if shape not in (*POINTED, *PLAIN):
            message = f"{key}={shape!r}: what it says of the link is not known"
            hint = f"none, normal or another arrow: {', '.join(POINTED)}"
            raise mistake(file, place, message, hint=hint)
        if shape in PLAIN:
            return False
    return True


# --- mistakes ---
#
# A mistake in a graph file: `file:line:column: what`, with a hint on what is allowed.


MAX_MESSAGE = 2000  # characters
Place = tuple[int, int]
"""Line and column, from 1."""


class GraphFileError(SynthdpError):
    """A graph file cannot be read, or a graph cannot be written in a format."""

    exit_code = 2


def mistake(
    file: str, place: Place | None, message: str, *, hint: str | None = None
) -> GraphFileError:
    """A mistake at a place of a file.

    The middle of a long text is cut out: it may quote a name as long as the file.
    """
    where = ":".join([file, *map(str, place or ())])
    return GraphFileError(f"{where}: {_short(message)}", hint=_short(hint) if hint else None)


def _short(text: str) -> str:
    half = MAX_MESSAGE // 2
    return text if len(text) <= MAX_MESSAGE else f"{text[:half]} ... {text[-half:]}"
