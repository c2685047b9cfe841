"""Samplers that the engine lacks, one per file, and `chain.py`, which carries them into vLLM.

Order of application: DRY, no-repeat-ngram, top-n-sigma, typical-p, XTC, dynamic temperature, Mirostat. They see the
logits before temperature; the engine's own temperature, min-p, top-k and top-p come after them.
"""
