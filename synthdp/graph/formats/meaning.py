"""What the attributes of nodes and links say: which node is unseen, and what a link is.

All formats share it. An attribute that decides either is understood, or the file is refused; every
other one, such as a colour, is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from synthdp.graph.formats.mistakes import Place, mistake

Attributes = Mapping[str, str]
"""By name, in lower case."""

# DAGitty's four, pgmpy's, and one more
UNSEEN = ("latent", "unobserved", "l", "u", "latents", "unmeasured")
SEEN = ("observed", "measured")  # DoWhy has the first
NODE_TYPES = ("type", "node_type", "nodetype")
DOWHY = "Unobserved Confounders"  # the label of the node that DoWhy adds
TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no")

DIRECTIONS = {"->": "forward", "<-": "back", "--": "none", "<->": "both"}
"""By link: Graphviz's word for it."""
CIRCLES = ("@->", "<-@", "--@", "@--", "-@-", "@-@", "o->", "<-o", "o-o", "o--", "--o")
POINTED = (
    *("normal", "vee", "open", "empty", "onormal"),
    *("halfopen", "lnormal", "rnormal", "lvee", "rvee"),
)
YED = ("standard", "delta", "plain")  # yEd's arrows
LINK_TYPES = {"directed": "->", "undirected": "--", "bidirected": "<->"}
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
    if mark in CIRCLES:
        raise mistake(
            file,
            place,
            f"a link {mark} with a circle stands for several graphs",
            hint=CIRCLE_HINT,
        )
    if "invis" in attributes.get("style", ""):
        return ""
    part = next((key for key in ("lhead", "ltail") if key in attributes), None)
    if part:
        raise mistake(
            file,
            place,
            f"{part}={attributes[part]!r}: a link that ends at a whole cluster",
            hint="links join columns; write { a b } for several",
        )
    kind = next((attributes[k] for k in ("edge_type", "type") if k in attributes), "").lower()
    way = attributes.get("dir", DIRECTIONS[LINK_TYPES.get(kind, mark)]).lower()
    if way not in DIRECTIONS.values():
        raise mistake(
            file, place, f"dir={way!r} of a link", hint=f"one of {', '.join(DIRECTIONS.values())}"
        )
    tail = _is_pointed("arrowtail", attributes, file=file, place=place)
    head = _is_pointed("arrowhead", attributes, file=file, place=place)
    if tail and "arrowtail" in attributes and "dir" not in attributes and way == "forward":
        raise mistake(
            file,
            place,
            "an arrowtail, which is drawn with dir=back or dir=both alone",
            hint="say which with dir, or delete arrowtail",
        )
    return _BY_ENDS[tail and way in ("back", "both"), head and way in ("forward", "both")]


def _is_pointed(end: str, attributes: Attributes, *, file: str, place: Place | None) -> bool:
    """Whether an end of a link is an arrow, else it is plain."""
    shape = attributes.get(end, "normal").lower()
    if shape in ("odot", "circle", "white_circle", "transparent_circle"):
        raise mistake(
            file,
            place,
            f"a link with a circle ({end}={shape}) stands for several graphs",
            hint=CIRCLE_HINT,
        )
    if shape not in (*POINTED, *YED, "none"):
        raise mistake(
            file,
            place,
            f"{end}={shape!r}: what it says of the link is not known",
            hint=f"none, normal or another arrow: {', '.join(POINTED)}",
        )
    return shape != "none"
