"""What is missing is said before a run."""

import pytest

from bench.extras import require
from bench.run.spec import SpecError


def test_what_is_there_may_be_required() -> None:
    require("json", "asyncio")


def test_what_is_missing_is_named_with_the_way_to_get_it() -> None:
    with pytest.raises(SpecError, match=r"no_such_module not installed here: pip install 'streamgauge\[bench\]'"):
        require("json", "no_such_module")
