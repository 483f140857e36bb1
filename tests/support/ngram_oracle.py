"""Interpolated modified Kneser-Ney (Chen and Goodman, 1999) as loops over dictionaries of tuples, and the cache."""

from collections import Counter, defaultdict


class Oracle:
    """An n-gram model of a list of tokens.

    Args:
        end: the token at the end of each line, or None: then None stands before the text, and the context goes on.
    """

    def __init__(self, text, order, vocab, end):
        self.order, self.vocab, self.end = order, vocab, end
        counts = {order: Counter((*self.context(text[max(0, i - order) : i]), word) for i, word in enumerate(text))}
        for k in range(order - 1, 0, -1):
            before = defaultdict(set)
            for gram in counts[k + 1]:
                before[gram[1:]].add(gram[0])
            counts[k] = Counter({gram: len(left) for gram, left in before.items()})
        self.counts = counts
        self.discounts = {k: self.discounts_of(counts[k].values()) for k in counts}
        self._sums = {}

    @staticmethod
    def discounts_of(values):
        n = Counter(values)
        y = n[1] / (n[1] + 2 * n[2])
        return {0: 0, 1: 1 - 2 * y * n[2] / n[1], 2: 2 - 3 * y * n[3] / n[2], 3: 3 - 4 * y * n[4] / n[3]}

    def context(self, before):
        """The last order - 1 tokens of the line, filled up with the token at the end of a line."""
        line = []
        for token in reversed(before):
            if token == self.end:
                break
            line.insert(0, token)
        padded = [self.end] * self.order + line
        return tuple(padded[len(padded) - self.order + 1 :])

    def probability(self, word, before):
        """p(word) after the tokens of a text."""
        return self._p(word, self.context(before))

    def _p(self, word, context):
        k = len(context) + 1
        lower = 1 / len(self.vocab) if k == 1 else self._p(word, context[1:])
        total, taken = self._sums_of(context)
        if total == 0:
            return lower
        count = self.counts[k][(*context, word)]
        return (count - self.discounts[k][min(count, 3)]) / total + taken / total * lower

    def _sums_of(self, context):
        """Of all words after a context: the sum of the counts, and of what is taken from them."""
        if context not in self._sums:
            k = len(context) + 1
            counts = [self.counts[k][(*context, word)] for word in self.vocab]
            self._sums[context] = sum(counts), sum(self.discounts[k][min(count, 3)] for count in counts)
        return self._sums[context]


def cached(word, before, window):
    """The share of a word among the last tokens of a text."""
    recent = before[-window:]
    return recent.count(word) / len(recent)
