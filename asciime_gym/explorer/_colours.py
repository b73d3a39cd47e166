"""Colours of the page; they are those of the pictures, which need a library that the page does not."""

# Okabe and Ito's, as in `analysis._style`.
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
OTHERS = ("#E69F00", "#56B4E9", "#B3A125", "#CC79A7", "#009E73", "#D55E00", "#0072B2")
# Viridis, from low to high; the page draws what is between.
FITNESS = (
    *("#440154", "#48186A", "#472D7B", "#424086", "#3B528B", "#33638D", "#2C728E", "#26828E", "#21918C"),
    *("#1FA088", "#28AE80", "#3FBC73", "#5EC962", "#84D44B", "#ADDC30", "#D8E219", "#FDE725"),
)


def operator_colours(operators: tuple[str, ...]) -> list[str]:
    """Each operator's own colour."""
    strangers = [name for name in operators if name not in OPERATORS]
    return [OPERATORS.get(name) or OTHERS[strangers.index(name) % len(OTHERS)] for name in operators]
