from pathlib import Path

import pytest

from bench.run.spec import SpecError
from bench.run.traces import Recorded, read

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.517335+00:00,2399,6
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
"""
MOONCAKE = """{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}

{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 2353]}
"""
OURS = '{"timestamp": 1.5, "prompt_tokens": 8, "output_tokens": 4}\n' * 2


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "second"),
    [
        (AZURE, Recorded(pytest.approx(4.314579), 396, 109)),
        (AZURE_2024, Recorded(pytest.approx(0.507405), 2399, 6)),
        (BURST, Recorded(40.0, 1087, 1)),
        (MOONCAKE, Recorded(pytest.approx(3.053), 6472, 26, (46, 2353))),
        (OURS, Recorded(0.0, 8, 4)),
    ],
)
def test_the_published_traces_are_known_by_their_columns(tmp_path: Path, text: str, second: Recorded) -> None:
    found = read(written(tmp_path, text), 2)
    assert found[0].offset_s == 0.0
    assert found[1] == second


def test_a_byte_order_mark_and_windows_line_ends_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf" + AZURE.replace("\n", "\r\n").encode())
    assert [one.prompt_tokens for one in read(path, 2)] == [374, 396]


def test_no_more_is_read_than_asked_for(tmp_path: Path) -> None:
    assert len(read(written(tmp_path, OURS + "nonsense\n"), 1)) == 1


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (AZURE + "2023-11-16 18:15:40,1,1\n", 4, "before the previous"),
        (AZURE + "yesterday,1,1\n", 4, "not a time"),
        (AZURE + "2023-11-16 18:15:59,many,1\n", 4, "not a number of tokens"),
        (AZURE + "2023-11-16 18:15:59,1.5,1\n", 4, "not a number of tokens"),
        (AZURE + "2023-11-16 18:15:59,-1,1\n", 4, "not a number of tokens"),
        (AZURE + "2023-11-16 18:15:59\n", 4, "not the columns"),
        ("when,how many\n1,2\n", 2, "TIMESTAMP, ContextTokens, GeneratedTokens"),
        (OURS + "{nonsense\n", 3, "not JSON"),
        (OURS + "[1]\n", 3, "not a JSON object"),
        (OURS + '{"timestamp": 2}\n', 3, "not the columns"),
        (OURS + '{"timestamp": NaN, "prompt_tokens": 8, "output_tokens": 4}\n', 3, "not JSON"),
        (MOONCAKE.replace("[46, 2353]", '"46"'), 3, "hash_ids"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError, match=words) as caught:
        read(path, 100)
    assert f"{path}:{line}: " in str(caught.value)


def test_a_trace_shorter_than_the_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has 2 requests, and 3 are asked for"):
        read(written(tmp_path, OURS), 3)


def test_a_file_that_is_not_there_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="missing"):
        read(tmp_path / "missing", 1)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(SpecError, match="binary"):
        read(tmp_path / "binary", 1)
