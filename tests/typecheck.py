"""The type checker that the import hook in conftest.py applies to the package."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float
