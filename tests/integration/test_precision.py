"""The default model's weights in fewer bits, on the real engine."""

import subprocess

import httpx

from tests.integration.http import CHAT, chat
from tests.integration.process import COMMAND, server_process


def test_weights_in_8_bits_know_what_those_knew_that_they_were_made_of() -> None:
    pull = [str(COMMAND), "models", "pull", "smollm2-135m", "--precision", "int8"]
    subprocess.run(pull, check=True, timeout=300, capture_output=True)
    with server_process() as server:
        server.start("--precision", "int8")
        server.wait_ready()
        body = chat("What is the capital of France?", model="smollm2-135m", max_tokens=16, temperature=0)
        answer = httpx.post(f"http://{server.host}:{server.port}{CHAT}", json=body, timeout=120).json()
    assert "Paris" in answer["choices"][0]["message"]["content"]
