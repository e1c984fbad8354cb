"""Training steps of three models: PyTorch eager, ``torch.compile`` with this backend, and Inductor.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 MINISITCH_THREADS=1 \\
        taskset -c 0 python benchmarks/torch_steps.py > benchmarks/results/2026-11-28-torch-steps-1-core-x86_64.json

Needs PyTorch and transformers. A step is forward and backward: 4 layers, hidden size 256, 8 heads, 4 sequences of 128. Each
round runs all three, one after the other. A number is a step's milliseconds of processor time on one core.
"""

import json
import platform
import time

import torch
import transformers

SIZES = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "max_position_embeddings": 128}
MODELS = {
    "GPT2": {"vocab_size": 1000, "n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 128, "resid_pdrop": 0.0,
             "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0},
    "Llama": {**SIZES, "num_key_value_heads": 8, "intermediate_size": 512},
    "Bert": {**SIZES, "intermediate_size": 1024, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
}
ROUNDS = 15


def milliseconds(model, run, x):
    """One step's processor time."""
    model.zero_grad()
    before = time.process_time()
    run(x).last_hidden_state.sum().backward()
    return round(1000 * (time.process_time() - before), 2)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {"machine": platform.machine(), "torch": torch.__version__, "transformers": transformers.__version__, "ms": {}}
    for name, settings in MODELS.items():
        torch._dynamo.reset()
        model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**settings))
        x = torch.randint(0, 1000, (4, 128))
        runs = {"eager": model, "minisitch": torch.compile(model, backend="minisitch"), "inductor": torch.compile(model)}
        for run in runs.values():  # compile, and once more
            milliseconds(model, run, x), milliseconds(model, run, x)
        rounds = [{who: milliseconds(model, run, x) for who, run in runs.items()} for _ in range(ROUNDS)]
        found["ms"][name] = {who: [each[who] for each in rounds] for who in runs}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
