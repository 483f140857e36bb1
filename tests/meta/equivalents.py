"""Mutants that no test can kill because they change no value; each excuse is an expression, and why."""

from dataclasses import dataclass

from mutations import Mutant


@dataclass(frozen=True)
class Equivalent:
    """An expression whose surviving mutants are excused, because they change no value; stale when it excuses none.

    `function` is the qualified name of the function that holds it, '' for the top of a module. The module is not named,
    so that code can be moved.
    """

    function: str
    text: str
    reason: str

    def excuses(self, mutant: Mutant) -> bool:
        """Whether the mutated node is this expression or a part of it."""
        return self.function == mutant.function and self.text in mutant.within


SAME_AXIS = "the same axis, counted from the other end, or the only place of it"
CPU = "on the CPU nothing is recorded"
SPEED = "how much is done at a time is a matter of speed alone"
CHECKED_BELOW = "harness.dropout.Dropout refuses the same numbers with the same sentence"
NO_PENALTY = "a penalty of 0 adds 0"
ONE_LAYER = "its backbone, last_tokens, has one layer"
COUNTED = "counting sets it, or a state dict"
NUMBER = "a tensor of one number, or numpy's, does the same as the number"
NEAREST = "only the order - 1 nearest tokens are read"
ONE_DEVICE = "all weights are on one device, in the tests on the default one"
PROBED = "what a probe measures enters no number of a trial"
EQUIVALENT = [
    Equivalent(
        "PredictionModule.ahead",
        "nn.Transformer.generate_square_subsequent_mask(T, device=h_BTD.device, dtype=h_BTD.dtype)",
        "0 and -infinity are the same in every type, and the tests are on the default device",
    ),
    Equivalent(
        "PredictionModule.ahead",
        "self.block(x_BTE, src_mask=mask_TT, is_causal=True)",
        "the hint that the mask is causal lets torch take a quicker form with the same values",
    ),
    Equivalent("words_ahead", "functional.pad(known_BT, (0, window), value=NO_TOKEN).unfold(1, window, 1)", SAME_AXIS),
    Equivalent("TokenOrder.order_loss", "torch.arange(self.window, device=z_BTV.device)", ONE_DEVICE),
    Equivalent("", "(256, 200, 10000)", PROBED),
    Equivalent("_error", "torch.Generator().manual_seed(0)", PROBED),
    Equivalent("_error", "torch.randn(*shape, generator=generator)", PROBED),
    Equivalent("_error", "(96, 320, 2000)", PROBED),
    Equivalent("_error", "words[1::4]", PROBED),
    Equivalent("_error", "sums[:, 0]", PROBED),
    Equivalent("_error", "rows.view(4, 24, width)", PROBED),
    Equivalent("_error", "words[:40].view(4, width, 10)", PROBED),
    Equivalent(
        "_scored",
        "torch.zeros((), dtype=torch.float64, device=device)",
        "the device of the tests is the default",
    ),
    Equivalent("_scored", "weights[0].device", ONE_DEVICE),
    Equivalent("_gradient_sizes", "training_segments(corpus.train, **sizes, device=weights[0].device)", ONE_DEVICE),
    Equivalent("_scored", "segment.to(device)", "the tests are on the CPU, with ids as int64"),
    Equivalent("_scored", "nats.item()", NUMBER),
    Equivalent("Buffers.__init__", "block[:size]", "room for more tokens than are used"),
    Equivalent("Buffers.rows", "E:E + NUM_ONES", "the columns after these are multiplied by zeros, or not read"),
    Equivalent("HarmonicSoftmax.forward", "torch.cat([w_VE, -w_VE.square().sum(1, keepdim=True)], dim=1)", SAME_AXIS),
    Equivalent("start_as_", "weight.shape[1]", SAME_AXIS),
    Equivalent("_rounded", "0 if offset_V is None else NUM_ONES", "further columns are zeros"),
    Equivalent("tokens_at_once", "blocks[0]", "all blocks have as many tokens, and are on one device"),
    Equivalent("Bend.map_", "self.c != 0", "adding 0 changes nothing"),
    Equivalent("HarmonicMap.map_", "beside is not None", "a new tensor is made, and nobody reads it"),
    Equivalent("Tensors", "(1,)", "its subclasses were made with it, and all others give partitions"),
    Equivalent("Lean", "0.0", "only `gradients` reads it, and its callers give it"),
    Equivalent("Lean.nll", "self._exponentials(tokens, buffers, sloped=False)", SPEED),
    Equivalent("Lean._exponentials", "buffers.slopes if sloped else []", SPEED),
    Equivalent("Lean.gradients", "self.z_loss", NO_PENALTY),
    Equivalent("Lean._differentiate", "self.z_loss", NO_PENALTY),
    Equivalent("Lean.gradients", "chunk.rows.normaliser.square().mean(1)", SAME_AXIS),
    Equivalent("Lean._combined", "self.bends", SPEED),
    Equivalent("Lean._take_out", "torch.arange(len(targets_n), device=targets_n.device)", ONE_DEVICE),
    Equivalent("Lean._combined", "found[0]", "there is one"),
    Equivalent("Lean._combined", "len(found) == 1", "a shortcut: one part put together is that part"),
    Equivalent("Lean.mapped", "len(block) if self.bends else 0", "a range that is empty in any case"),
    Equivalent("Lean.mapped", "slope[i:i + size]", "torch gives an empty output its size, at the same place"),
    Equivalent(
        "Lean.mapped_at_once", "len(blocks[0]) if blocks[0].dtype == self.wide else tokens_at_once(*blocks)", SPEED
    ),
    Equivalent("Lean._with_z_loss", "list(self.layout.partitions)", "a list and a tuple of the same numbers"),
    Equivalent(
        "log_normaliser", "torch.stack([u_NV.logsumexp(-1) for u_NV in component_logits(mixture)], dim=1)", SAME_AXIS
    ),
    Equivalent("Mixture.z_term", "self.z_loss == 0", NO_PENALTY),
    Equivalent("Mixture.z_term", "kernels.log_normaliser(self).square().mean(1)", SAME_AXIS),
    Equivalent("_require_shapes", "tuple(log_prior_BTK.shape[:2])", "a torch.Size equals its tuple"),
    Equivalent("_require_shapes", "tuple(bias_V.shape) != weight[:1]", "a torch.Size equals its tuple"),
    Equivalent("_require_shapes", "facets[:2]", "there are four sizes by then"),
    Equivalent("_require_shapes", "weight[1]", SAME_AXIS),
    Equivalent("_require_shapes", "weight[:1]", SAME_AXIS),
    Equivalent("KneserNey.__init__", "dims.layer_dims[-1]", ONE_LAYER),
    Equivalent("KneserNey.__init__", "torch.tensor(0)", COUNTED),
    Equivalent("KneserNey.__init__", "torch.tensor(0.0, dtype=torch.float64)", COUNTED),
    Equivalent("KneserNey.orders", "self.text.long()", "int32 ids give the same: ranks of contexts are int64"),
    Equivalent("KneserNey.orders", "int(self.line_end)", NUMBER),
    Equivalent("KneserNey.count", "self.text.long()", "int32 and int64 ids give the same"),
    Equivalent("KneserNey.forward", "hidden.layers[-1]", ONE_LAYER),
    Equivalent("KneserNey.context", "last_PL[:, last_PL.shape[1] - self.order + 1:]", NEAREST),
    Equivalent("KneserNey.context", "int(self.line_end)", NUMBER),
    Equivalent("KneserNey._chosen", "int(self.line_end)", NUMBER),
    Equivalent("KneserNey._chosen", "torch.cat(cached, dim=1)", SAME_AXIS),
    Equivalent("KneserNey._chosen", "float(best[chosen].x)", NUMBER),
    Equivalent(
        "KneserNey._chosen",
        "minimize_scalar(lambda weight, c_N=c_N: -np.log((1 - weight) * ngram_N + weight * c_N).mean(), "
        "bounds=(0, 1), method='bounded')",
        "with bounds the method is scipy's default",
    ),
    Equivalent("NgramDistribution.__init__", "int(head.cache_window)", NUMBER),
    Equivalent("NgramDistribution.__init__", "head.cache", "without a cache its weight is 0"),
    Equivalent("counted", "order - 1", NEAREST),
    Equivalent("counted", "number_N.new_zeros(1)", "a context that no n-gram has is never looked up"),
    Equivalent("discounts", "0", "a count of 0 is not read"),
    Equivalent("discounts", "range(1, 5)", "counts above 4 are not read"),
    Equivalent("discounts", "0 <= discount <= i", "what is taken from the count i is not below 0"),
    Equivalent("distribution", "(length_P.cumsum(0) - length_P)[row_G]", SAME_AXIS),
    Equivalent("cache_probability", "(recent_PW == target_P[:, None]).sum(1)", SAME_AXIS),
    Equivalent("cache_probability", "(recent_PW != NO_TOKEN).sum(1)", SAME_AXIS),
    Equivalent(
        "cache_distribution", "counts_PV.scatter_add_(1, recent_PW.clamp(min=0), is_token_PW.long())", SAME_AXIS
    ),
    Equivalent("cache_distribution", "is_token_PW.sum(1, keepdim=True)", SAME_AXIS),
    Equivalent("_discounted", "len(contexts_C) + 1", "one more number than is read"),
    Equivalent("_discounted.sums", "values_G.cumsum(0)", SAME_AXIS),
    Equivalent("_discounted.sums", "(1, 0)", "one more number than is read"),
    Equivalent("_discounted", "sums(a_G).double()", "a float64 divided by an int64 is a float64"),
    Equivalent("_discounted", "(level_G == i).long()", "the cumulative sum of truth values is int64"),
    Equivalent("_before", "functional.pad(text_N[:-1], (length, 0), value=NO_TOKEN).unfold(0, length, 1)", SAME_AXIS),
    Equivalent("_within_line", "outside_PC.flip(1).cumsum(1).flip(1)", SAME_AXIS),
    Equivalent("Logits.training_loss", "self.z_loss", NO_PENALTY),
    Equivalent("refuse_weightless", "weight.is_cuda and torch.cuda.is_current_stream_capturing()", CPU),
    Equivalent("MixtureOfSoftmaxes.__init__", "not 0 <= dropout < 1", CHECKED_BELOW),
    Equivalent("MixtureOfContexts.__init__", "not 0 <= dropout < 1", CHECKED_BELOW),
    Equivalent(
        "Clustered._losses",
        "torch.tensor(self.layers.cutoffs, device=rank_N.device)",
        "on the CPU it is the default device; tests/system/test_second_device.py has another one",
    ),
    Equivalent(
        "_largest",
        "values_nV.argmax(-1) if values_nV.is_cuda else torch.from_numpy(values_nV.numpy().argmax(-1))",
        "the same place, sooner; the other axes counted from the other end",
    ),
    Equivalent("_largest", "values_nV.gather(-1, top_n[:, None])[:, 0]", SAME_AXIS),
    Equivalent("", "-2000.0", "any number whose power of two is 0 will do"),
    Equivalent("lean", "given.layout.partitions == (1,)", "a shortcut: the equations of a mixture give the same"),
    Equivalent("lean", "_of_softmax(parts[0][:, 0], rooms_2mV)", "there is one part, of one facet"),
    Equivalent("lean", "slice(first + i, first + i + len(parts[0]))", "all parts have as many tokens"),
    Equivalent("_rooms", "(2, len(given.weight_VE))", SPEED),
    Equivalent("_rooms", "row_2V.expand(buffers.tokens, -1, -1)", SPEED),
    Equivalent("_few", "range(0, len(values), size)", "a part without tokens adds nothing"),
    Equivalent("_of_softmax", "torch.exp2(block_mV, out=rooms_2mV[0, :len(block_mV)])", "another tensor of this size"),
    Equivalent("_of_softmax", "torch.sum(room_mV, -1, out=sum_n[some])", SAME_AXIS),
    Equivalent("_of_softmax", "torch.sum(room_mV.mul_(block_mV), -1, out=weighted_n[some])", SAME_AXIS),
    Equivalent("_of_softmax", "(block_nV.exp2() * block_nV.clamp_(min=LOWEST)).sum(-1)", SAME_AXIS),
    Equivalent("_of_softmax", "weighted_n.isnan().any()", "a shortcut: the limit changes no other number"),
    Equivalent("_of_mixture", "torch.cat(values, dim=1)", SAME_AXIS),
    Equivalent("_of_probabilities", "_log2(mixed_mV, room_mV).mul_(mixed_mV).sum(-1)", SAME_AXIS),
    Equivalent("_log2", "values_nV.is_cuda", "the same logarithm; NumPy takes no tensor of a GPU"),
    Equivalent("_log2", "torch.log2(values_nV, out=room_nV)", "the tests run on the CPU; otherwise a new tensor"),
    Equivalent("_log2", "values_nV.numpy()", "NumPy takes a tensor, too"),
    Equivalent(
        "_ranks",
        "torch.argsort(counts_V, descending=True, stable=True)",
        "on the CPU torch sorts stably whether it is asked to or not",
    ),
    Equivalent("Clustered.log_probs", "self._first(self.h_ND).log_softmax(-1)", SAME_AXIS),
    Equivalent("Clustered.log_probs", "self._within(c, self.h_ND).log_softmax(-1)", SAME_AXIS),
    Equivalent("Clustered.log_probs", "torch.cat(parts, dim=-1).index_select(-1, self.rank_V)", SAME_AXIS),
    Equivalent("Clustered.statistics", "torch.stack([z.logsumexp(-1) for z in logits], dim=-1)", SAME_AXIS),
    Equivalent("Clustered._losses", "self.rank_V.index_select(0, targets_BT.flatten())", SAME_AXIS),
    Equivalent("Clustered._losses", "first_NS.logsumexp(-1)", SAME_AXIS),
    Equivalent("Clustered._losses", "first_NS.gather(-1, at_N[:, None])[:, 0]", SAME_AXIS),
    Equivalent("Clustered._losses", "(cluster_N == c).nonzero()[:, 0]", SAME_AXIS),
    Equivalent("Clustered._losses", "self.h_ND.index_select(0, rows)", SAME_AXIS),
    Equivalent("Clustered._losses", "rank_N.index_select(0, rows)", SAME_AXIS),
    Equivalent("Clustered._losses", "z.logsumexp(-1)", SAME_AXIS),
    Equivalent("Clustered._losses", "nll_N.index_add(0, rows, log_z - z.gather(-1, word[:, None])[:, 0])", SAME_AXIS),
    Equivalent("Clustered._losses", "squares_N.index_add(0, rows, log_z.square())", SAME_AXIS),
    Equivalent(
        "DirectOutputConnectionPoster.forward",
        "torch.stack([facet(h) for facet, h in zip(self.facets, read, strict=True)], dim=2)",
        SAME_AXIS,
    ),
    Equivalent(
        "MultiFacetSoftmax.forward",
        "torch.stack([facet(query) for facet in self.facets], dim=2)",
        SAME_AXIS,
    ),
    Equivalent(
        "MultiFacetSoftmax.input_block",
        "(0, 0, offset, 0)",
        "what is padded at the end, [:, :T] cuts off",
    ),
    Equivalent("NoiseContrastive.contrast", "from_noise_Nk.sum(-1)", SAME_AXIS),
    Equivalent("NoiseContrastive.contrast", "bias_V.index_select(0, targets_N)", SAME_AXIS),
    Equivalent("NoiseContrastive.contrast", "bias_V.index_select(0, noise_words)", SAME_AXIS),
    Equivalent("_looked_up", "table_M.index_select(0, index.flatten())", SAME_AXIS),
    Equivalent("PiecewiseLinearSoftmax.phi", "slope_M.cumsum(0)", SAME_AXIS),
    Equivalent("", "256 * 2 ** 20", SPEED),
    Equivalent("", "Callable[[Tensors, Tensor, Tensor, float], Tensor]", "a type for readers"),
    Equivalent("Form", "1.0", "a power of two changes no bit of a number, and the sign is not used"),
    Equivalent("in_chunks", "range(0, len(mixture.facets_NFE), size)", "a part without tokens adds nothing"),
    Equivalent(
        "has_triton",
        "is_there('triton') and is_there(TRITON_ROWS.partition(':')[0])",
        "it is asked for tensors on a GPU",
    ),
    Equivalent("", "64", "how many tokens of a batch are checked again"),
    Equivalent("", "40 * 2 ** 20", SPEED),
    Equivalent(
        "Buffers.__init__",
        "ALIGNMENT if self.matrix_VC.is_cuda else 1",
        "multiples of -1 are those of 1",
    ),
    Equivalent("Buffers.logits", "self.matrix_VC.shape[1]", SAME_AXIS),
    Equivalent("Sums.__init__", "lean.weight_VE.shape[1]", SAME_AXIS),
    Equivalent("Sums.__init__", "buffers.rows_rC.shape[1]", SAME_AXIS),
    Equivalent(
        "Sums.bias",
        "self.width if self.needs.weight else 0",
        "the second column of ones adds up to the gradient of b as well",
    ),
    Equivalent("_facet_numbers", "count_K.cumsum(0)", SAME_AXIS),
    Equivalent(
        "Lean.targets",
        "self.layout.plain",
        "a shortcut: gathering would copy the facets as they are",
    ),
    Equivalent("Lean.targets", "self.bias_V.index_select(0, targets_n)", SAME_AXIS),
    Equivalent("Lean._facet_gradient", "self.weight_VE.shape[1]", SAME_AXIS),
    Equivalent(
        "Lean._facet_gradient",
        "self.layout.plain",
        "a shortcut: scattering would subtract the same",
    ),
    Equivalent(
        "Lean._add_matrix_gradient",
        "sums.bias.index_add_(0, targets_n, rest_nK1.sum((1, 2)), alpha=-1)",
        SAME_AXIS,
    ),
    Equivalent("Lean._owners", "self.weight_VE.shape[1]", SAME_AXIS),
    Equivalent("", "40.0", "softplus(x) is x in float64 from 37 on"),
    Equivalent("", "2 ** 19", SPEED),
    Equivalent("", "2 ** 22", SPEED),
    Equivalent("Products.addmm_", "out.shape[1]", SAME_AXIS),
    Equivalent("combine_rows_", "target_nK.shape[1]", SAME_AXIS),
    Equivalent(
        "normalisers",
        "len(partitions) == log_sum_nF.shape[1]",
        "a shortcut: the logsumexp of one number is the number",
    ),
    Equivalent(
        "normalisers",
        "torch.stack([part.logsumexp(-1) for part in log_sum_nF.split(partitions, dim=-1)], dim=-1)",
        SAME_AXIS,
    ),
    Equivalent("nll_of", "joint_nK.logsumexp(-1)", SAME_AXIS),
    Equivalent(
        "spread",
        "sum(counts) == len(counts)",
        "a shortcut: each component has one facet then",
    ),
    Equivalent(
        "spread",
        "torch.cat([values_nK[:, k:k + 1].expand(-1, count) for k, count in enumerate(counts)], dim=-1)",
        SAME_AXIS,
    ),
    Equivalent("nll", "torch.stack(component_nlls, dim=1)", SAME_AXIS),
    Equivalent("nll", "torch.logsumexp(mixture.log_prior_NK - nll_NK, dim=1)", SAME_AXIS),
    Equivalent("log_probs", "u_NV.log_softmax(-1)", SAME_AXIS),
    Equivalent(
        "_partitioned_product",
        "num_partitions == 1",
        "a shortcut: the same product at once",
    ),
    Equivalent("_partitioned_product", "facets_NPE[:, 0]", "there is one facet then"),
]
