"""The vocabulary of instructions and responses, split into a training and a held-out half."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FUNCTION_WORDS = ("the", "a", "and", "in", "on", "of", "with", "is", "my", "to", "for", "by")
"""Shared by both splits: they carry no meaning that a verdict could depend on."""

_TRAIN = """
    river stone lamp cloud horse garden window table music sugar summer winter market doctor bottle
    button candle castle circle coffee copper cotton dinner dragon engine farmer finger flower forest
    guitar hammer honey island jacket kettle ladder lemon marble mirror monkey morning mountain needle
    orange pencil pepper planet pocket potato rabbit ribbon rocket salmon school shadow silver spider
    spring station temple thunder ticket tiger tomato tunnel turtle valley velvet village violin wagon
    walnut yellow bright quiet gentle golden heavy hollow little lovely narrow purple simple slow soft
    strong sudden sweet tiny warm wild carries follows finds gives holds keeps loves makes needs opens
    paints sees sends shows sings takes turns walks wants washes writes apple autumn badger balcony
    bamboo banana barley beaver blanket blossom bracket branch breeze bucket buffalo cabbage cabin
    cactus camel carpet cedar cellar cherry chimney cinema citrus clover coconut comet compass coral
    corner cottage cousin crayon cricket crown crystal curtain dolphin domino donkey drawer drummer
    dolls eleven emerald evening falcon fabric famine fashion ferry festival fossil fountain gallery
    garlic geese ginger goblet gravel grocery hamster harvest hazel hedgehog hockey hunter iceberg igloo
    ivory jaguar jasmine jewel journal juniper kayak kidney kingdom koala lagoon laundry lizard lobster
    locker magnet mango maple mattress melon mineral mitten mosaic mushroom mustard napkin nectar nephew
    nickel nutmeg oatmeal octopus olive orchard orchid otter oyster paddle pancake panther papaya
    parsley pebble pelican penguin petal pigeon plaster plumber poem polar polish popcorn porcelain
    porridge prince puddle puppet puzzle quarry quartz quilt raccoon radish raisin raven reindeer
    rhubarb robin rooster rosemary sandal saffron sapphire saucer scarf scissors seagull shelter
    shepherd shovel skeleton sketch sparrow spinach squirrel steeple swallow syrup tailor teacher
    telescope tennis thimble tractor treasure trolley truffle tundra turnip twilight unicorn vanilla
    vineyard vinegar volcano voyage waffle walrus weasel willow windmill woodland yogurt absurd bitter
    blunt brisk calm cheerful chilly classic clumsy cosy curious damp dizzy double eager early elegant
    empty exotic faint fancy fierce fluffy fragile frosty fuzzy generous glossy gloomy grumpy handy
    hasty hidden hungry icy itchy jagged jumpy keen large lazy lucky mellow messy mighty misty muddy
    mystic nervous noisy odd pale patient plain polite proud quick ragged rare royal rusty salty scary
    shiny shy silent silky slender smooth solid sour sticky tender thirsty tidy tough urban vast vivid
    weary wooden young borrows chases dances digs drinks drops enters fights flies forgets greets grows
    hunts invites joins jumps knits laughs leans learns lends listens locks marches melts mends notes
    obeys orders packs plays pours pushes questions races reaches rests roams rolls runs scores selects
    shakes shines skips sleeps smiles solves spins stacks stirs stops swims teaches thinks throws
    tickles touches trades travels trusts visits waits wakes waters whistles wins wonders works
"""
_HELD_OUT = """
    anchor basket bridge camera canyon cheese cookie desert eagle feather fiddle glacier harbor
    helmet insect jungle kitten lantern meadow museum ocean parrot piano pillow prairie pumpkin saddle sailor
    sister statue sunset throne trumpet tulip umbrella wallet whisper wizard zebra ancient clever dusty famous
    fresh grand humble jolly lively modest rapid sturdy brings builds climbs draws guards hears hides lifts
    moves pulls rides saves
"""
TRAIN_WORDS = tuple(_TRAIN.split())
HELD_OUT_WORDS = tuple(_HELD_OUT.split())


@dataclass(frozen=True, slots=True)
class Split:
    """One half of what can be sampled: words, letters, thresholds and, through `Family`, wordings."""

    name: str
    """`train` or `heldout`."""
    words: tuple[str, ...]
    letters: str

    def number(self, rng: Random, low: int, high: int) -> int:
        """Sample a threshold in [low, high]; thresholds that are 1 modulo 3 are held out."""
        heldout = self.name == "heldout"
        return rng.choice([n for n in range(low, high + 1) if (n % 3 == 1) is heldout])

    def word(self, rng: Random) -> str:
        return rng.choice(self.words)


TRAIN = Split("train", TRAIN_WORDS, "aeors")
HELD_OUT = Split("heldout", HELD_OUT_WORDS, "itn")
SPLITS = {split.name: split for split in (TRAIN, HELD_OUT)}


def loose_words(rng: Random, split: Split, count: int) -> list[str]:
    """Sample `count` words without case or punctuation, about one in three a function word."""
    return [
        rng.choice(FUNCTION_WORDS) if position and rng.random() < 0.3 else split.word(rng)
        for position in range(count)
    ]


def sentence(words: list[str], end: str = ".") -> str:
    """Return the words as one sentence."""
    return " ".join(words).capitalize() + end


def salad(rng: Random, split: Split, count: int | None = None) -> str:
    """Write a meaningless sentence of `count` words (5 to 9 if None), sometimes with a comma."""
    words = loose_words(rng, split, count or rng.randint(5, 9))
    if len(words) > 3 and rng.random() < 0.2:
        words[rng.randrange(1, len(words) - 1)] += ","
    return sentence(words)
