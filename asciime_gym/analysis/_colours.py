"""Each operator's own colour, in pictures and on pages; nothing here needs a library to draw with."""

# Okabe and Ito's, as in `_style`.
OPERATORS = {
    "initial": "#8A8A8A",
    "iso_line": "#0072B2",
    "ascii": "#D55E00",
    "policy_gradient": "#009E73",
    "actor_injection": "#CC79A7",
    "explore": "#56B4E9",
    "exploit": "#E69F00",
    "probe": "#B3A125",
    "branch": "#56B4E9",
}
OTHERS = ("#8A8A8A", "#E69F00", "#56B4E9", "#B3A125", "#CC79A7", "#009E73", "#D55E00", "#0072B2")


def operator_colour(name: str, operators: tuple[str, ...]) -> str:
    """The operator's own colour."""
    strangers = [other for other in operators if other not in OPERATORS]
    return OPERATORS[name] if name in OPERATORS else OTHERS[1:][strangers.index(name) % len(OTHERS[1:])]
