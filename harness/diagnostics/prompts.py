"""Prompts with two words that are both right as the next one: 'The king and the woman came ... we spoke to the'.

The words are the pairs of two sections of Google's analogy questions (Mikolov et al., 2013, arXiv:1301.3781). Two pairs
a : b and c : d of a section, man : woman and king : queen for example, are combined in two ways:

- crossed: {a, d} and {b, c}: man and queen, woman and king. The embeddings of such words are nearly the corners of a
  parallelogram, a + d = b + c. Where they are exactly that, a softmax cannot give both words of a crossed pair more
  probability than both of the other two;
- control: the other ways, {a, b}, {a, c} and so on.

Every pair is written into each template in both orders. The form of the templates, and crossed and control, are those
of the code for the multi-facet softmax (Chang and McCallum); the sentences are ours, of frequent words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from harness.corpora.corpus import Codec, Corpus
from harness.corpora.vocabulary import EOS, SOS
from harness.errors import CorpusError

A, B = "$A", "$B"  # where the two words are in a template
MOST_PAIRS = 60  # crossed ones of a section, and as many of the control
PEOPLE = (
    "boy girl, brother sister, brothers sisters, dad mom, father mother, grandfather grandmother, grandpa grandma, "
    "grandson granddaughter, groom bride, husband wife, king queen, man woman, nephew niece, policeman policewoman, "
    "prince princess, son daughter, sons daughters, stepbrother stepsister, stepfather stepmother, "
    "stepson stepdaughter, uncle aunt"
)
PLACES = (
    "Athens Greece, Baghdad Iraq, Bangkok Thailand, Beijing China, Berlin Germany, Bern Switzerland, Cairo Egypt, "
    "Canberra Australia, Hanoi Vietnam, Havana Cuba, Helsinki Finland, Islamabad Pakistan, Kabul Afghanistan, "
    "London England, Madrid Spain, Moscow Russia, Oslo Norway, Ottawa Canada, Paris France, Rome Italy, "
    "Stockholm Sweden, Tehran Iran, Tokyo Japan"
)
TEMPLATES = {  # the words of a section -> its templates
    PEOPLE: (
        f"The {A} and the {B} came to the house and we spoke to the",
        f"The {A} and the {B} were there and he looked at the",
        f"We know the {A} and the {B} and we love the",
        f"There was a letter for the {A} or the {B} and I gave it to the",
    ),
    PLACES: (
        f"I went to {A} and {B} last year and I will go back to",
        f"{A} and {B} are the best places and he lives in",
        f"They came from {A} or {B} and now they return to",
        f"He has a house in {A} and a house in {B} and he will be in",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The token ids of a prompt that names first the one and then the other word of its pair; `others`: for a crossed
    pair the other two words of its parallelogram, () for a control.
    """

    tokens: tuple[int, ...]
    first: int
    second: int
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """The prompts that a vocabulary can express.

    Args:
        templates_left_out: the number of templates that have a word outside of the vocabulary, or too many tokens.
        pairs_left_out: the number of pairs of which a word, or one of the parallelogram's, is no token of its own.
    """

    prompts: tuple[Prompt, ...]
    templates_left_out: int
    pairs_left_out: int


def prompts_of(corpus: Corpus, longest: int | None) -> Prompts:
    """Write the prompts in the tokens of a corpus: at most MOST_PAIRS evenly spaced pairs of each section and way.

    A word of a word-level vocabulary is taken as it is or else in lower case, and the prompt is at the beginning of a
    line, if there are lines. With other tokens every word has a space before it.

    Args:
        longest: the most tokens that a prompt can have; None: any number.
    """
    written, start = _writer(corpus)
    found: list[Prompt] = []
    templates_left_out = pairs_left_out = 0
    for section, templates in TEMPLATES.items():
        forms = [form for template in templates if (form := _form(template, written, start)) is not None]
        forms = [form for form in forms if longest is None or len(form) <= longest]
        templates_left_out += len(templates) - len(forms)
        tokens = []
        for pair in section.split(", "):
            tokens.append(tuple(_token(written, word) for word in pair.split()))
        for every in (_crossed(tokens), _control(tokens)):
            pairs = [pair for pair in every if _is_known(*pair)]
            pairs_left_out += len(every) - len(pairs)
            number = min(MOST_PAIRS, len(pairs))
            for words, others in (pairs[index * len(pairs) // number] for index in range(number)):
                found += [_filled(form, order, others) for form in forms for order in permutations(words)]
    return Prompts(prompts=tuple(found), templates_left_out=templates_left_out, pairs_left_out=pairs_left_out)


Written = Callable[[str], tuple[int, ...] | None]  # a word -> its tokens; None: it cannot be expressed
Words = Sequence[tuple[int | None, int | None]]  # the tokens of pairs such as man and woman; None: no token of its own
Pair = tuple[tuple[int, int], tuple[int, ...]]  # two words, and for a crossed pair the others of its parallelogram


def _writer(corpus: Corpus) -> tuple[Written, tuple[int, ...]]:
    """A function that writes a word, and the tokens with which a prompt begins."""
    if corpus.symbols is None:
        return (lambda word: _encoded(corpus.codec, f" {word}")), ()
    ids = {symbol: index for index, symbol in enumerate(corpus.symbols)}

    def written(word: str) -> tuple[int, ...] | None:
        known = next((each for each in (word, word.lower()) if each in ids), None)
        return None if known is None else (ids[known],)

    return written, tuple(ids[symbol] for symbol in (EOS, SOS) if symbol in ids)


def _encoded(codec: Codec | None, text: str) -> tuple[int, ...] | None:
    if codec is None:
        return None
    try:
        ids = tuple(codec.encode(text))
    except CorpusError:  # the vocabulary does not have these characters
        return None
    return ids if codec.decode(ids).strip() == text.strip() else None


def _token(written: Written, word: str) -> int | None:
    """The token that is this word; None where it has several, or none."""
    ids = written(word)
    return ids[0] if ids is not None and len(ids) == 1 else None


def _form(template: str, written: Written, start: tuple[int, ...]) -> tuple[int | str, ...] | None:
    """The tokens of a template, with A and B in their places; None if a word cannot be expressed."""
    found: list[int | str] = list(start)
    for word in template.split():
        ids = (word,) if word in (A, B) else written(word)
        if ids is None:
            return None
        found += ids
    return tuple(found)


def _filled(form: tuple[int | str, ...], order: tuple[int, int], others: tuple[int, ...]) -> Prompt:
    first, second = order
    tokens = tuple(first if each == A else second if each == B else each for each in form)
    return Prompt(tokens=tokens, first=first, second=second, others=others)


def _crossed(words: Words) -> list[Pair]:
    four = [(a, b, c, d) for (a, b), (c, d) in combinations(words, 2)]
    return [pair for a, b, c, d in four for pair in (((a, d), (b, c)), ((b, c), (a, d)))]


def _control(words: Words) -> list[Pair]:
    across = [pair for two in combinations(words, 2) for pair in zip(*two, strict=True)]
    return [(pair, ()) for pair in (*words, *across)]


def _is_known(*pair: tuple[int | None, ...]) -> bool:
    every = sum(pair, ())
    return None not in every and len(set(every)) == len(every)
