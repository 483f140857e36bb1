"""Speed and memory of heads and whole training steps, compared with the published structure: `harness bench`."""

from collections.abc import Mapping
from typing import NamedTuple


class Bench(NamedTuple):
    """A command of `harness bench`: the module of this package whose `measure` makes records, and its options with
    their defaults, which harness/cli/bench.py describes.
    """

    module: str
    summary: str
    example: str
    options: Mapping[str, object]


MACHINE = {"threads": 1, "device": "auto"}
CHECKED = {"assert_targets": False, "replace": False}
COMPARED = {"setting": "ptb", "tokens": None, "heads": "", "impl": "", "precision": "fp32,bf16", "route": "both"}
TIMED = {**COMPARED, **MACHINE, **CHECKED, "rounds": 7, "compile_too": False, "graph": False, "strict": False}
STEP = {**TIMED, "backbone": "transformer_encoder"}
INFERENCE = {**TIMED, "setting": "gpt2-small", "tokens": 800, "heads": "poster-softmax,poster-mos3,mfs-inputs"}
BACKBONE = {"backbones": "lstm,transformer_encoder,gpt2", "contexts": "32,64,128,256,512,1024,2048", "rounds": 7}
SPEED = "Time the forward and backward pass of heads."
STEPS = "Time whole training steps: forward, loss, backward, clip, update."
EVALUATION = "Time the forward pass of heads without gradients, as in evaluation."
POSTER = "Time the forward pass with loss of a whole GPT-2 on 4 sequences of 200 tokens, as in the multi-facet poster."
MEMORY = "Measure the peak extra memory of one step of a head; without --tokens also at ten times the tokens."
CONTEXT = "Measure time and memory of a backbone's step by context length: where attention costs more than the rest."
PLANNED = "Compare the memory that `harness plan --memory` computes with measured steps in new processes."
DECODING = (
    "Measure the tokens a second that an LSTM and Transformers of equal size write, one text at a time, one thread."
)
EXTRAS = "Measure what a logit map, the z-loss and statistics add to the plain pass, in processor time, on one thread."
BENCHES = {
    "head": Bench("comparisons", SPEED, "--heads softmax,mos10 --rounds 7", TIMED),
    "step": Bench("comparisons", STEPS, "--heads softmax,mos10 --rounds 7", STEP),
    "eval": Bench("comparisons", EVALUATION, "--heads softmax,mos10 --rounds 7", TIMED),
    "inference": Bench("comparisons", POSTER, "--impl published --precision fp32 --rounds 7", INFERENCE),
    "memory": Bench("comparisons", MEMORY, "--heads mos5,mos15 --impl published", COMPARED | MACHINE | CHECKED),
    "backbone": Bench("backbones", CONTEXT, "--contexts 64,256,1024 --save", BACKBONE | MACHINE),
    "plan-memory": Bench("plan_memory", PLANNED, "--save", {"device": "auto"}),
    "sample": Bench("decoding", DECODING, "--save", {"rounds": 5}),
    "extras": Bench("extras", EXTRAS, "--rounds 15 --save", {"setting": "ptb", "rounds": 15}),
}
