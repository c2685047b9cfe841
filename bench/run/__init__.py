"""`streamgauge bench run`: load on any OpenAI-compatible server, and what came of it.

In the data's order: `spec` says what is asked; `plan` makes of it when (`arrivals`, `traces`) and what is said
(`prompts`, `prompt_files`); `address` knows where, `dialects` how it is put on the wire and read; a `share` is what one
process does of it, `workers` are several, `load` runs them with `meter` and `series` beside; `result` keeps every raw
sample, `objectives` judges, `table` and `report` show it.
"""
