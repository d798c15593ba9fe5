"""Judge formats, one file per paper or prompt style; `registry` has their names.

To add one, write a module here with a base class: `text_only.TextScore` (ratings on a scale, no programs),
`text_only.TextPair` (pairs, no programs), `tir.TirFormat` (programs) or `tir_pointwise.TirPointwise` (ratings
with programs; its prompts name the scale as well). Then add its prompt to `../prompts`, its name to
`registry.ENVIRONMENTS`, its card to docs/judges.md, an answer to `ANSWERS` in
tests/tirjudge/judging/test_rereading.py, and a test: tests/environments/formats/test_text_score.py is short.
"""
