import random

import pytest

from draftkiln.target import language


def text(seed, length=40):
    source = random.Random(seed)
    return [source.randrange(256) for _ in range(length)]


def test_every_word_is_its_own_and_decodes_to_its_pair():
    assert len(set(language.WORDS)) == 256
    assert [language.parts(token) for token in (0, 17, 255)] == [(0, 0), (1, 1), (15, 15)]


def test_a_parts_cycle_through_all_sixteen_values():
    a, seen = 0, []
    for _ in range(16):
        seen.append(a)
        a = language.successor(a)
    assert a == 0
    assert sorted(seen) == list(range(16))


def test_b_parts_come_back_after_511_tokens_and_not_before():
    start = [*text(1, 8), 1]
    run = [language.parts(token)[1] & 1 for token in language.continuation(start, 1022)]
    assert run[:511] == run[511:]
    assert all(run[:511] != run[shift : 511 + shift] for shift in range(1, 511))


@pytest.mark.parametrize(("back", "changes"), [(0, True), (3, True), (8, True), (1, False), (2, False), (9, False)])
def test_the_next_token_depends_on_the_current_and_two_earlier_tokens_alone(back, changes):
    tokens = text(2)
    other = tokens.copy()
    other[-1 - back] ^= 0x11
    assert (language.next_token(other) != language.next_token(tokens)) is changes


def test_a_continuation_is_the_next_token_again_and_again():
    tokens = text(3)
    expected = tokens.copy()
    for _ in range(20):
        expected.append(language.next_token(expected))
    assert language.continuation(tokens, 20) == expected[-20:]


def test_a_text_shorter_than_the_reach_has_a_next_token_too():
    assert language.next_token([5]) == 16 * language.successor(0)


def test_words_are_written_as_the_tokenizer_decodes_them():
    assert language.words([0, 255, 258]) == "bara jaba <|im_end|>"
