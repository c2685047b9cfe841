"""What only some commands need, and an installation without the `bench` extra lacks."""

from importlib.util import find_spec

from bench.run.spec import SpecError


def require(*modules: str) -> None:
    """Before a run rather than after it. Raises SpecError that names the missing ones and how to get them."""
    if missing := [module for module in modules if find_spec(module) is None]:
        raise SpecError(f"{' and '.join(missing)} not installed here: pip install 'streamgauge[bench]'")
