"""Finds texts without a finite verb in their main clause: fragments. Needs no model: verbs are listed, or seen by their form and neighbors."""

from __future__ import annotations

import re

# These are finite wherever they stand.
_ALWAYS_TEXT = """
    am are be can can't cannot could couldn't did didn't do does doesn't don't had hadn't has hasn't have haven't is
    isn't it's let's may might must mustn't shall should shouldn't that's there's was wasn't were weren't what's will
    won't would wouldn't they're we're you're
    began broke came chose fell forgot froze gave grew knew saw spoke stole threw took went woke wrote
"""
_STEMS_TEXT = """
    die hand win frame pace speak commute clock exec pin gain implement note stack reorder forecast sweep outweigh veto recognise summarize notify blur abandon abort accelerate accept access account accompany accumulate acquire act add address adjust admit adopt advance
    advertise advise affect afford agree aim align alias allocate allow alternate amount announce answer appear append apply
    approximate arise arrange arrive ask assemble assert assign assume attach attempt augment average avoid await balance base
    bear become begin behave believe belong bind blame block borrow bound break bring broadcast buffer build bump call
    cancel care carry cast catch cause center change charge check choose claim clamp classify clean clear clip clone close
    coalesce collapse collect collide combine come command commit commute compare compete compile complain complete comply compress
    compute concern conclude confuse connect consider consist consult consume contain continue contradict contribute
    control convert copy correct correspond cost count cover crash create crop cross cut cycle damage deal dealt decide
    declare decode decompress decrease decrypt deduce defer define delay delete deliver delimit demand deny depend derive
    describe deserve destroy detach detect determine develop differ digest disable disagree disappear discard disconnect discover
    distinguish distribute disturb divide double download drain draw drift drive drop duplicate dwell edit elapse emit empty
    enable encode encrypt end enforce enlarge ensure enter enumerate equal erase escape escrow establish estimate evict
    examine exceed except exchange exclude excuse execute exercise exist exit expand expect expire explain export expose express
    extend extract face fail fall favor feed fetch fill filter find finish fit fix flatten flip flush fly fold follow forbid
    force forget fork form format forward free freeze fulfill function gather generate get give go govern grant group grow
    guarantee guard guess halve handle hang happen harm hash have head hear help hide hint hit hold honor hurt identify
    ignore imitate imply import improve include increase increment indicate infer inflate inform inherit initialize insert
    inspect install intend interleave interpret interrupt introduce invalidate invent invert invoke involve iterate join judge
    jump keep kill know label lack last lay lead learn leave lend lengthen let lie lift like limit linger link list listen
    live load lock log look loop lose lower maintain make manage map mark mask match matter mean measure meet mention merge
    mimic mirror miss mix mock model modify mount move multiply name need negotiate nest normalize notice notify number obey
    observe obtain occupy occur offer omit open operate order outlive outnumber outrank overflow overlap override overtake
    overwrite own pack pad paint parse pass paste pause pay peek perform permit permute persist pick pin place plan plant
    play point poison poll pop populate possess post postpone precede predict prefer prefetch prefix prepare prescribe present
    preserve press presume pretend prevent print probe proceed process produce prohibit project promise propagate propose
    protect prove provide publish pull punish push put qualify query queue quit quote race raise rank reach react read
    rearrange rebuild recall receive recognize recommend recompute reconnect record recover recurse redirect reduce refer
    reflect refresh refuse register reject relate relax relay release rely remain remember remind remove rename render renew
    reopen reorder repair repeat replace replay reply report represent request require reread rescale reserve reset resize
    resolve respect respond rest restart restore restrict result resume retire retry return reuse reveal revert rewind rewrite
    ride ring rise rotate round route ruin rule run sample save say scale scan schedule score search seal see seed seek seem select
    send separate serialize serve set settle shard share shift ship shorten show shrink shuffle shut sign signal simulate sit
    size skip sleep slice slow smooth snapshot solve sort sound spare spawn specify spend spill split spoil spread squeeze stamp
    stand start starve state stay steal step stick stop store stream stretch strip subclass submit subtract succeed suffice suggest
    suit sum supersede supply support suppose suppress surpass surprise survive suspect suspend swallow swap switch
    synchronize synthesize take talk target tear tell tend terminate test think throttle throw tie time tolerate touch trace track
    train transfer transform translate transmit travel traverse treat trigger trim truncate trust try turn type undo unlink
    unlock unpack update upgrade upload use validate value vanish vary verify view violate visit vote wait wake walk want warm warn wash
    waste watch weigh wish withdraw work worry wrap write yield zero
"""
# These are verbs also where no neighbor says so: in these texts they are no nouns.
_STRICT_TEXT = """
    accept agree allow appear apply arrive ask assume become begin behave belong bring choose come compare consist contain continue
    correspond decide depend describe differ disappear divide do end ensure exist expect fail fall find fit follow get
    give go grow happen hear hide include keep know lack learn leave lead let lie make mean meet miss need outlive overlap
    pass prefer prevent receive refuse rely remain remove see seem send serve set show stay stop succeed suffice survive
    take tell throw try understand vanish want win write yield work die hold look share have say stand run speak wait continue sum put gain apply outweigh sweep serve
"""
_ALWAYS, _STEMS, _STRICT = (set(text.split()) for text in (_ALWAYS_TEXT, _STEMS_TEXT, _STRICT_TEXT))
_IRREGULAR = {"has": "have", "goes": "go", "does": "do"}
# A clause of its own begins with these; its verb is not that of the sentence.
_SUBORDINATE = {
    "that",
    "which",
    "who",
    "whose",
    "whom",
    "if",
    "when",
    "where",
    "while",
    "because",
    "unless",
    "what",
    "how",
    "whether",
    "whatever",
}
_PREPOSITIONS = {
    "of",
    "in",
    "on",
    "at",
    "by",
    "for",
    "from",
    "with",
    "without",
    "to",
    "into",
    "than",
    "like",
    "beside",
    "below",
    "above",
    "after",
    "before",
    "until",
    "through",
    "as",
    "over",
    "under",
    "between",
    "per",
    "within",
    "about",
}
_DETERMINERS = {
    "a",
    "an",
    "the",
    "its",
    "their",
    "our",
    "his",
    "your",
    "my",
    "this",
    "these",
    "those",
    "all",
    "any",
    "each",
    "every",
    "no",
    "some",
    "many",
    "most",
    "few",
    "several",
    "both",
    "other",
    "others",
    "own",
    "one",
    "two",
    "three",
    "four",
    "five",
    "ten",
    "same",
    "first",
    "last",
    "next",
    "more",
    "fewer",
    "such",
    "new",
    "old",
    "further",
    "only",
}
_SUBJECTS = {
    "they",
    "we",
    "you",
    "i",
    "these",
    "those",
    "others",
    "both",
    "people",
    "data",
    "children",
    "many",
    "most",
    "all",
}
_ADVERBS = {
    "also",
    "always",
    "never",
    "only",
    "still",
    "then",
    "so",
    "therefore",
    "often",
    "either",
    "thus",
    "now",
    "just",
    "not",
    "even",
    "again",
    "already",
    "here",
    "there",
    "later",
    "first",
    "too",
    "mostly",
    "usually",
}


def _stem(word: str) -> str | None:
    """Returns the stem of a third person singular."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and word[:-3] + "y" in _STEMS:
        return word[:-3] + "y"
    for ending in ("s", "es"):
        if word.endswith(ending) and word[: -len(ending)] in _STEMS:
            return word[: -len(ending)]
    return None


def _finite(words: list[str], at: int) -> bool:
    word = words[at]
    if word in _ALWAYS:
        return True
    before = at - 1
    while before >= 0 and words[before] in _ADVERBS:
        before -= 1
    previous = words[before] if before >= 0 else ""
    blocked = _DETERMINERS - {"this", "each", "one", "both", "all", "those", "these", "others", "most", "many"}
    if stem := _stem(word):
        if stem in _STRICT:
            return previous not in blocked
        return previous not in _DETERMINERS | _PREPOSITIONS or previous in {"this", "each", "one"}
    if word in _STEMS:
        if not previous or previous in ",;:":
            return before < 0 or word in _STRICT
        if word in _STRICT and previous not in blocked | {"to"} | _PREPOSITIONS:
            return True
        plural = previous.endswith("s") and previous not in _DETERMINERS | _PREPOSITIONS | {"this", "less"} | _ALWAYS
        return previous in _SUBJECTS or previous in _SUBORDINATE or plural
    return False


def has_verb(sentence: str) -> bool:
    """Returns true if the main clause of a sentence has a finite verb, or is an order ("Read it")."""
    words = re.findall(
        r"[a-z][a-z'-]*|[A-Z]{2,}\w*|\d+|[,;:()]",
        sentence[:1].lower() + re.sub(r"[A-Z][a-z]", lambda found: found[0].lower(), sentence[1:]),
    )
    waiting = 0
    for at, word in enumerate(words):
        if word in _SUBORDINATE and not (word == "that" and (at == 0 or words[at - 1] in _PREPOSITIONS)):
            waiting += 1
        elif word in ",;" and at and waiting:
            waiting = 0 if words[0] in _SUBORDINATE else waiting
        elif _finite(words, at):
            if not waiting:
                return True
            waiting -= 1
    return False
