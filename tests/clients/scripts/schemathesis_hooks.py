"""Keeps generated requests short: thousands of them that fill the model's context would take hours."""

from typing import Any

import schemathesis

LIMITS = {
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
}
TOKENS = 2


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    limit = LIMITS.get(case.path)
    if limit is None or not isinstance(case.body, dict):
        return
    for name in {limit, "max_tokens"} & case.body.keys():
        if isinstance(case.body[name], int) and case.body[name] > TOKENS:
            case.body[name] = TOKENS
    if case.body.get(limit) is None:
        case.body[limit] = TOKENS
