"""Configs and tensors of public models, in the shapes that their makers published."""

from typing import Any

Config = dict[str, Any]
Shapes = dict[str, tuple[str, tuple[int, ...]]]

TINY: Config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 160,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 320,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip

LLAMA_8B: Config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}  # fmt: skip

LLAMA_70B: Config = {
    **LLAMA_8B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
}  # fmt: skip

QWEN3_30B: Config = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "sliding_window": None, "use_sliding_window": False, "max_window_layers": 48,
}  # fmt: skip

DEEPSEEK_V3: Config = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "first_k_dense_replace": 3,
    "num_attention_heads": 128, "num_key_value_heads": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "num_nextn_predict_layers": 1, "vocab_size": 129280, "max_position_embeddings": 163840,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"},
    "quantization_config": {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
    },
}  # fmt: skip

GEMMA3_4B: Config = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "siglip_vision_model"},
}  # fmt: skip

GPT_OSS_20B: Config = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880, "head_dim": 64,
    "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
    "num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "vocab_size": 201088,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
    "rope_scaling": {"factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn"},
}  # fmt: skip

QWEN3_NEXT: Config = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 2048, "head_dim": 256,
    "intermediate_size": 5120, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "num_experts": 512,
    "num_experts_per_tok": 10, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 151936,
    "max_position_embeddings": 262144, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def llama(config: Config, *, dtype: str = "BF16", head: bool = True) -> Shapes:
    """Return the tensors of a Llama."""
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q = config["num_attention_heads"] * config.get("head_dim", hidden // config["num_attention_heads"])
    kv = q // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (q, hidden),
            f"{at}.self_attn.k_proj.weight": (kv, hidden),
            f"{at}.self_attn.v_proj.weight": (kv, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, q),
            f"{at}.mlp.gate_proj.weight": (inner, hidden),
            f"{at}.mlp.up_proj.weight": (inner, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, inner),
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.post_attention_layernorm.weight": (hidden,),
        }
    shapes["model.norm.weight"] = (hidden,)
    if head:
        shapes["lm_head.weight"] = (vocabulary, hidden)
    return {name: (dtype, shape) for name, shape in shapes.items()}


def qwen3_moe(config: Config) -> Shapes:
    """Return the tensors of a Qwen3 mixture of experts."""
    inner, hidden, size = config["moe_intermediate_size"], config["hidden_size"], config["head_dim"]
    shapes = {name: shape for name, shape in llama(config).items() if ".mlp." not in name}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes[f"{at}.self_attn.q_norm.weight"] = shapes[f"{at}.self_attn.k_norm.weight"] = ("BF16", (size,))
        shapes[f"{at}.mlp.gate.weight"] = ("BF16", (config["num_experts"], hidden))
        for expert in range(config["num_experts"]):
            shapes[f"{at}.mlp.experts.{expert}.gate_proj.weight"] = ("BF16", (inner, hidden))
            shapes[f"{at}.mlp.experts.{expert}.up_proj.weight"] = ("BF16", (inner, hidden))
            shapes[f"{at}.mlp.experts.{expert}.down_proj.weight"] = ("BF16", (hidden, inner))
    return shapes


def deepseek(config: Config) -> Shapes:
    """Return the tensors of a DeepSeek-V3, with its layer for drafting: fp8 in blocks of 128, and their scales."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    q_rank, rank, rope = config["q_lora_rank"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    vocabulary, layers = config["vocab_size"], config["num_hidden_layers"]
    shapes: Shapes = {
        "model.embed_tokens.weight": ("BF16", (vocabulary, hidden)),
        "model.norm.weight": ("BF16", (hidden,)),
        "lm_head.weight": ("BF16", (vocabulary, hidden)),
    }

    def matrix(name: str, rows: int, columns: int) -> None:
        shapes[f"{name}.weight"] = ("F8_E4M3", (rows, columns))
        shapes[f"{name}.weight_scale_inv"] = ("F32", (-(-rows // 128), -(-columns // 128)))

    def mlp(name: str, inner: int) -> None:
        matrix(f"{name}.gate_proj", inner, hidden)
        matrix(f"{name}.up_proj", inner, hidden)
        matrix(f"{name}.down_proj", hidden, inner)

    for layer in range(layers + config["num_nextn_predict_layers"]):
        at = f"model.layers.{layer}"
        matrix(f"{at}.self_attn.q_a_proj", q_rank, hidden)
        matrix(f"{at}.self_attn.q_b_proj", heads * (nope + rope), q_rank)
        matrix(f"{at}.self_attn.kv_a_proj_with_mqa", rank + rope, hidden)
        matrix(f"{at}.self_attn.kv_b_proj", heads * (nope + value), rank)
        matrix(f"{at}.self_attn.o_proj", hidden, heads * value)
        for name, size in (("q_a_layernorm", q_rank), ("kv_a_layernorm", rank)):
            shapes[f"{at}.self_attn.{name}.weight"] = ("BF16", (size,))
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}.{name}.weight"] = ("BF16", (hidden,))
        if layer < config["first_k_dense_replace"]:
            mlp(f"{at}.mlp", config["intermediate_size"])
        else:
            shapes[f"{at}.mlp.gate.weight"] = ("BF16", (config["n_routed_experts"], hidden))
            shapes[f"{at}.mlp.gate.e_score_correction_bias"] = ("F32", (config["n_routed_experts"],))
            mlp(f"{at}.mlp.shared_experts", config["moe_intermediate_size"])
            for expert in range(config["n_routed_experts"]):
                mlp(f"{at}.mlp.experts.{expert}", config["moe_intermediate_size"])
        if layer >= layers:
            shapes |= {
                f"{at}.embed_tokens.weight": ("BF16", (vocabulary, hidden)),
                f"{at}.eh_proj.weight": ("BF16", (hidden, 2 * hidden)),
                f"{at}.enorm.weight": ("BF16", (hidden,)),
                f"{at}.hnorm.weight": ("BF16", (hidden,)),
                f"{at}.shared_head.norm.weight": ("BF16", (hidden,)),
                f"{at}.shared_head.head.weight": ("BF16", (vocabulary, hidden)),
            }
    return shapes


def gpt_oss(config: Config) -> Shapes:
    """Return the tensors of a gpt-oss: MXFP4 blocks of 32 numbers with a scale byte each, biases everywhere."""
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    vocabulary = config["vocab_size"]
    shapes: Shapes = {
        "model.embed_tokens.weight": ("BF16", (vocabulary, hidden)),
        "model.norm.weight": ("BF16", (hidden,)),
        "lm_head.weight": ("BF16", (vocabulary, hidden)),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name, rows, columns in (("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = ("BF16", (rows, columns))
            shapes[f"{at}.self_attn.{name}_proj.bias"] = ("BF16", (rows,))
        shapes |= {
            f"{at}.self_attn.sinks": ("BF16", (config["num_attention_heads"],)),
            f"{at}.mlp.router.weight": ("BF16", (experts, hidden)),
            f"{at}.mlp.router.bias": ("BF16", (experts,)),
            f"{at}.mlp.experts.gate_up_proj_blocks": ("U8", (experts, 2 * inner, hidden // 32, 16)),
            f"{at}.mlp.experts.gate_up_proj_scales": ("U8", (experts, 2 * inner, hidden // 32)),
            f"{at}.mlp.experts.gate_up_proj_bias": ("BF16", (experts, 2 * inner)),
            f"{at}.mlp.experts.down_proj_blocks": ("U8", (experts, hidden, inner // 32, 16)),
            f"{at}.mlp.experts.down_proj_scales": ("U8", (experts, hidden, inner // 32)),
            f"{at}.mlp.experts.down_proj_bias": ("BF16", (experts, hidden)),
            f"{at}.input_layernorm.weight": ("BF16", (hidden,)),
            f"{at}.post_attention_layernorm.weight": ("BF16", (hidden,)),
        }
    return shapes
