"""The step probe: where each step of the engine spends its time, seen from inside the engine's processes.

`core.py` hooks the scheduling loop, `worker.py` the model runner; each writes a record per step into a ring in shared
memory (`ring.py`), which the serving process reads and joins (`records.py`) when a step's outputs arrive.
"""
