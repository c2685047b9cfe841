"""`vllm bench serve`, by module: the CPU wheel's `vllm` command does not find its own version."""

import argparse

from vllm.benchmarks.serve import add_cli_args, main

parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
