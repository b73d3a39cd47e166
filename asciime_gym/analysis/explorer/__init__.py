"""The explorer: an archive as one page for the browser."""

from ._explore import explore as explore
