"""Colours of the page; they are those of the pictures."""

from .._colours import operator_colour

# Viridis, from low to high; the page draws what is between.
FITNESS = (
    *("#440154", "#48186A", "#472D7B", "#424086", "#3B528B", "#33638D", "#2C728E", "#26828E", "#21918C"),
    *("#1FA088", "#28AE80", "#3FBC73", "#5EC962", "#84D44B", "#ADDC30", "#D8E219", "#FDE725"),
)


def operator_colours(operators: tuple[str, ...]) -> list[str]:
    """Each operator's own colour."""
    return [operator_colour(name, operators) for name in operators]
