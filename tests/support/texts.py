"""Texts of words drawn at random, in which no run of words stands twice by chance."""

import random


def lines(number: int, seed: int, *, words: int = 200) -> str:
    """Lines of ten words each, of so many different ones."""
    draw = random.Random(seed)
    return "".join(" ".join(f"w{draw.randrange(words)}" for _ in range(10)) + "\n" for _ in range(number))


def shuffled(text: str, seed: int) -> str:
    """The words of a text in another order, ten in a line."""
    words = text.split()
    random.Random(seed).shuffle(words)
    return "".join(" ".join(words[start : start + 10]) + "\n" for start in range(0, len(words), 10))
