"""The metrics of a record, and their names in MLflow."""

# Every metric a record may hold -> its name in MLflow, None where a chart of it would show nothing. Perplexities are of
# the best epoch by validation unless 'last'.
METRICS = {
    "valid_ppl": "valid/ppl",
    "test_ppl": "test/ppl",
    "last_valid_ppl": "valid/ppl_last",
    "last_test_ppl": "test/ppl_last",
    "test_ppl_standard": "test/ppl_standard",  # standard counting: <sos> scored but not divided by
    "start_valid_ppl": "valid/ppl_start",  # before the first update
    "test_ppl_word": "test/ppl_word",  # the same summed loss, divided by the words of the text, ...
    "test_ppl_byte": "test/ppl_byte",  # ... by its bytes in UTF-8, ...
    "test_bits_per_character": "test/bits_per_character",  # ... by its characters, in bits
    "unigram_test_ppl": "test/ppl_unigram",  # add-one unigram of the training split, same tokens
    "source_test_ppl": "test/ppl_source",  # of the process that made the text, where it is known
    "params_total": "params/total",
    "params_head": "params/head",
    "train_ms_per_batch": "time/train_ms_per_batch",
    "train_ms_per_batch_iqr": "time/train_ms_per_batch_iqr",
    "eval_ms_per_batch": "time/eval_ms_per_batch",
    "eval_ms_per_batch_iqr": "time/eval_ms_per_batch_iqr",
    "inference_ms_per_batch": "time/inference_ms_per_batch",  # forward with loss, of measure.inference_batch segments
    "inference_ms_per_batch_iqr": "time/inference_ms_per_batch_iqr",
    "inference_batch": None,  # how many segments that is
    "train_minutes": "time/train_minutes",
    "peak_memory_mib": "memory/peak_mib",
    "best_epoch": "train/best_epoch",
    "scored_test_tokens": None,
    "context_tokens": None,  # tokens a segment
    "state_carried": None,  # 1: the backbone's state goes on from segment to segment
}
