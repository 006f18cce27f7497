"""The shortest right recipes."""

FROM_FILE = """\
schema_version: 1
name: good
stacks: {extract: a, train: b, evaluate: b}
target:
  source: {make: small}
layers:
  aux: [2, 4, 5]
data:
  source: {path: d.jsonl}
train:
  draft: {num_attention_heads: 8, num_key_value_heads: 4, intermediate_size: 512}
"""

SYNTHETIC = FROM_FILE.replace("{path: d.jsonl}", "{synthetic: 48}")
