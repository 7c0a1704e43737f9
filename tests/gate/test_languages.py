"""The languages of the visitors' pages: which one is chosen, and that each is whole."""

import json
import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from sidecar.gate.page.dates import format_date_and_time
from sidecar.gate.page.languages import Languages
from sidecar.kit.errors import InputError
from sidecar.kit.share import find_share

STATIC = find_share("static")
LANGUAGES = Languages(STATIC)
#: A number beside a noun needs plural forms, which differ: the page writes these by Intl, or so
#: that they fit any number.
COUNTED = re.compile(r"\{n\}\s*(\w+)")


def texts_of(tag):
    return json.loads((STATIC / "i18n" / f"{tag}.json").read_text(encoding="utf-8"))


def test_languages_are_chosen_by_quality():
    """The best of the page's languages is chosen, and English for odd headers."""
    assert LANGUAGES.choose("fr;q=0.3, ja;q=0.9, xx") == "ja"
    for wanted, language in (("pt-BR", "pt"), ("xx,ja;q=0.5", "ja"), ("fr;q=0.1,es;q=0.9", "es")):
        assert LANGUAGES.choose(wanted) == language
    for odd in (None, "", "*", ";;;", ";;,=q;q=x", "ko;q=0,en", "xx", "q=1,=", "é", "a" * 5000):
        assert LANGUAGES.choose(odd) == "en"


@pytest.mark.parametrize(
    ("wanted", "given"),
    [("zh", "zh-CN"), ("zh-SG", "zh-CN"), ("zh-TW", "zh-TW"), ("zh-Hant-HK", "zh-TW"),
     ("zh-MO", "zh-TW"), ("zh-HK", "zh-TW"), ("zh-Hans-CN", "zh-CN")],
)  # fmt: skip
def test_chinese_is_chosen_by_script(wanted, given):
    assert LANGUAGES.choose(f"{wanted}, en;q=0.5") == given


def test_sixteen_languages():
    assert set(LANGUAGES.tags) == {
        "ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "nl", "pl", "pt", "ru", "tr",
        "zh-CN", "zh-TW",
    }  # fmt: skip
    assert [tag for tag in LANGUAGES.tags if LANGUAGES.direction(tag) == "rtl"] == ["ar"]


@pytest.mark.parametrize("tag", LANGUAGES.tags)
def test_each_language_is_whole(tag):
    """No key is missing, unknown or empty, and what is to be filled in has its place."""
    texts, english = texts_of(tag), texts_of("en")
    texts.pop("dir", None)
    assert places_in(texts) == places_in(english)
    assert all(text.strip() for text in texts.values())


def places_in(texts):
    return {key: re.findall(r"{.*?}", text) for key, text in texts.items()}


@pytest.mark.parametrize("tag", ["ar", "pl", "ru"])
def test_no_number_stands_beside_a_noun_that_has_plurals(tag):
    """These languages have several plurals, so numbers stand beside abbreviations only."""
    beside = {m[1] for text in texts_of(tag).values() for m in COUNTED.finditer(text)}
    assert beside <= {"мин", "ч", "в", "min", "godz", "na", "د", "س", "في"}


def test_no_line_breaks_before_a_french_colon():
    """The space before it is one that does not break."""
    assert not {key: text for key, text in texts_of("fr").items() if re.search(" [:;?!]", text)}


@pytest.mark.parametrize("tag", ["ja", "zh-CN", "zh-TW"])
def test_no_ascii_punctuation_stands_beside_chinese(tag):
    """Chinese and Japanese have marks of their own, as wide as a character."""
    texts = {key: re.sub(r"{.}", "", text) for key, text in texts_of(tag).items()}
    assert not {key: text for key, text in texts.items() if re.search("[,:;?!()]", text)}


@pytest.mark.parametrize(
    ("tag", "opening"),
    [
        ("de", "1. Dezember 2026, 15:00 GMT+01:00"), ("fr", "1 décembre 2026, 15:00 UTC+01:00"),
        ("ar", "1 ديسمبر 2026، 3:00 م غرينتش\u200e+01:00"),
        ("hi", "1 दिसंबर 2026, 3:00 pm GMT+01:00"), ("ja", "2026年12月1日 15:00 GMT+01:00"),
        ("ko", "2026년 12월 1일 오후 3:00 GMT+01:00"), ("zh-CN", "2026年12月1日 15:00 GMT+01:00"),
        ("zh-TW", "2026年12月1日 下午3:00 GMT+01:00"),
        ("tlh", "December 1, 2026, 3:00 PM GMT+01:00"),
    ],
)  # fmt: skip
def test_a_date_is_written_as_people_write_it(tag, opening):
    """In a language that is not known, in English."""
    moment = datetime(2026, 12, 1, 15, tzinfo=ZoneInfo("Europe/Zurich"))
    assert format_date_and_time(moment, tag).replace("\u202f", " ") == opening


@pytest.mark.parametrize("tag", LANGUAGES.tags)
def test_no_two_moments_of_a_year_are_written_alike(tag):
    """In each language: all months and all hours, in summer and winter time."""
    zone = ZoneInfo("America/St_Johns")
    moments = [
        datetime(2026, month, 1, hour, tzinfo=zone) for month in range(1, 13) for hour in range(24)
    ]
    texts = [format_date_and_time(moment, tag) for moment in moments]
    assert len(set(texts)) == len(moments)
    assert (texts[0][-6:], texts[6 * 24][-6:]) == ("-03:30", "-02:30")
    english = [format_date_and_time(moment, "en") for moment in moments]
    assert (texts == english) == (tag == "en")  # none of the sixteen is written in English


@pytest.mark.parametrize(
    ("tag", "clock", "text"),
    [("en", "00:05", "12:05 AM"), ("en", "12:00", "12:00 PM"), ("de", "00:05", "00:05"),
     ("es", "00:05", "0:05"), ("ar", "12:00", "12:00 م"), ("zh-TW", "00:00", "午夜12:00"),
     ("zh-TW", "00:01", "凌晨12:01"), ("zh-TW", "12:59", "中午12:59"),
     ("zh-TW", "19:00", "晚上7:00")],
)  # fmt: skip
def test_clocks_of_twelve_hours_name_the_part_of_the_day(tag, clock, text):
    moment = datetime.fromisoformat(f"2026-12-01T{clock}+01:00")
    assert f" {text} " in format_date_and_time(moment, tag).replace("\u202f", " ")


def test_no_offset_stands_beside_universal_time():
    moment = datetime(2026, 12, 1, 15, tzinfo=ZoneInfo("UTC"))
    assert format_date_and_time(moment, "de") == "1. Dezember 2026, 15:00 GMT"
    assert format_date_and_time(moment, "fr") == "1 décembre 2026, 15:00 UTC"


def test_a_language_is_a_file(tmp_path):
    """A file that is added is a language. English replaces what it lacks and what is no text; a
    byte order mark is allowed, and a faulty file is named at the start."""
    (tmp_path / "i18n").mkdir()
    file = tmp_path / "i18n" / "sv.json"
    for text in (b"{", b"[]", b"\xff"):
        file.write_bytes(text)
        with pytest.raises(InputError, match=r"sv\.json"):
            Languages(tmp_path)
    file.write_text('\ufeff{"heading": null, "join": "Vidare"}')
    languages = Languages(tmp_path)
    assert languages.choose("sv-SE") == "sv"
    texts = languages.texts("sv")
    assert (texts["heading"], texts["join"]) == ("You are in line", "Vidare")
    assert texts["leave"] == "Leave the line"
