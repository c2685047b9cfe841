"""The stages of a request, as the bench reads them; a test holds this list to the server's own enum."""

STAGES = (
    "receive",
    "validate",
    "tokenize",
    "admit",
    "queue",
    "prefill",
    "decode",
    "sample",
    "transfer",
    "dispatch",
    "detokenize",
    "postprocess",
    "encode",
    "send",
)
