"""What heads are called in tables: the words for their parameters, of each head alone."""

import pytest

from harness.plan.names import names_of
from harness.plan.specs import ComponentSpec
from harness.registry import HEADS

EPSILON = {"compat": {"log_epsilon": 1e-8}}


@pytest.mark.parametrize(
    ("head", "params", "name"),
    [
        ("softmax", {}, "softmax"),
        ("softmax", {"tie_weights": True, "projection": True, "mu_centering": True}, "tied affine centred softmax"),
        ("softmax", {"d_embed": 16, "loss": "binary", **EPSILON}, "softmax, rank 16, binary loss, log(p + epsilon)"),
        ("softmax", {"logit_map": "stablemax"}, "stablemax"),
        ("softmax", {"logit_map": "stablemax", "tie_weights": True, "d_embed": 16}, "tied stablemax, rank 16"),
        ("sigsoftmax", {}, "sigsoftmax"),
        ("sigsoftmax", {"projection": True, **EPSILON}, "affine sigsoftmax, log(p + epsilon)"),
        ("mos", {}, "MoS 10"),
        ("mos", {"num_mixtures": 2, "logit_map": "sigsoftmax", "gate": "static"}, "MoSS 2, static gate"),
        ("mos", {"num_mixtures": 2, "logit_map": "stablemax", "gate": "static"}, "MoS 2, stablemax, static gate"),
        ("mos", {"gate": "constant", "loss": "binary"}, "MoS 10, constant gate, binary loss"),
        ("mos", {"activation": "none", **EPSILON}, "MoS 10, no tanh, log(p + epsilon)"),
        ("moc", {"num_mixtures": 3}, "MoC 3"),
        ("moc", {"num_mixtures": 3, "activation": "none"}, "MoC 3, no tanh"),
        ("doc", {"components": (15, 5)}, "DOC 15+5"),  # from the top layer down
        ("doc", {"components": {"second": 1, "top": 2}}, "DOC 2+1"),
        ("doc", {"components": {"third": 1, "top": 2}, **EPSILON}, "DOC 2+0+1, log(p + epsilon)"),
        ("doc_poster", {"num_mixtures": 3}, "DOC 3, poster"),
        ("doc_poster", {"num_mixtures": 3, **EPSILON}, "DOC 3, poster, log(p + epsilon)"),
        ("mfs", {"num_mixtures": 3, "num_partitions": 4}, "MFS 3"),
        ("mfs", {"num_mixtures": 3, "num_partitions": 2, **EPSILON}, "MFS 3, 2 partitions, log(p + epsilon)"),
        ("nce", {"num_noise": 5}, "NCE, 5 noise words"),
        ("nce", {"num_noise": 5, "projection": True}, "affine NCE, 5 noise words"),
        ("harmonic", {}, "harmonic"),
        ("harmonic", {"exponent": 2.0}, "harmonic, n 2"),
        ("mtp", {}, "MTP"),
        ("mtp", {"projection": True, "maps": "linear"}, "affine MTP, linear maps"),
        ("multimax", {}, "MultiMax"),
        ("multimax", {"projection": True}, "affine MultiMax"),
        ("early", {}, "early loss"),
        ("early", {"projection": True, "layer": 0, "fade": (0.0, 0.5)}, "affine early loss of layer 0, fading"),
        ("token_order", {}, "TOP"),
        ("token_order", {"projection": True, "fade": (0.0, 0.5)}, "affine TOP, fading"),
        ("bag_of_words", {}, "bag of 11 words"),
        ("bag_of_words", {"projection": True, "fade": (0.0, 0.5)}, "affine bag of 11 words, fading"),
        ("mtp_module", {}, "MTP module"),
        ("mtp_module", {"projection": True, "fade": (0.0, 0.5)}, "affine MTP module, fading"),
        ("byte_loss", {}, "loss of 4 bytes"),
        ("byte_loss", {"projection": True, "fade": (0.0, 0.5)}, "affine loss of 4 bytes, fading"),
        ("untying", {}, "softmax, untied at 0.67"),
        ("untying", {"projection": True, "share": 0.0}, "affine softmax, untied at 0"),
        ("ngpt", {}, "nGPT"),
        ("ngpt", {"projection": True}, "affine nGPT"),
        ("kneser_ney", {"order": 3}, "Kneser-Ney 3"),
        ("kneser_ney", {"order": 3, "cache": True}, "Kneser-Ney 3, cache"),
        ("mixtape", {}, "Mixtape"),
        ("plif", {}, "PLIF"),
        ("gss", {}, "GSS"),
        ("adaptive", {}, "adaptive softmax"),
    ],
)
def test_a_head_says_its_parameters_in_words(head, params, name):
    spec = ComponentSpec(name=head, params=params)
    assert names_of([spec], HEADS) == {str(spec): name}


@pytest.mark.parametrize(
    ("head", "chosen", "name"),
    [
        *(("mfs", "num_partitions", "MFS 3"), ("nce", "num_noise", "NCE")),
        *(("byte_loss", "num_bytes", "byte loss"), ("untying", "share", "softmax, untied")),
    ],
)
def test_what_is_chosen_later_is_not_said(head, chosen, name):
    spec = ComponentSpec(name=head)
    assert names_of([spec], HEADS, chosen=[chosen]) == {str(spec): name}
