"""Writes a date and a time as people do in each language of the page, after Unicode's CLDR.

Browsers know these forms themselves. A replica needs them for visitors without JavaScript."""

from bisect import bisect_right
from datetime import datetime
from typing import NamedTuple


class _Format(NamedTuple):
    """How a language writes a date and a time.

    In `pattern`, `H` is the hour from 0 to 23, `h` the hour from 1 to 12, and `period` the part of
    the day, such as AM. `periods` has the minute of the day at which each part begins, and its
    name. `utc` stands before a time zone's offset."""

    pattern: str
    months: str = ""
    periods: tuple[tuple[int, str], ...] = ()
    utc: str = "GMT"


def format_date_and_time(moment: datetime, language: str) -> str:
    """Return a date and time in the form of a language, with the offset of the time zone. Use the
    English form for a language that the page does not have."""
    style = _FORMATS.get(language, _FORMATS["en"])
    minute = moment.hour * 60 + moment.minute
    period = bisect_right(style.periods, minute, key=lambda period: period[0]) - 1
    text = style.pattern.format(
        y=moment.year,
        M=moment.month,
        month=style.months.split()[moment.month - 1] if style.months else "",
        d=moment.day,
        H=moment.hour,
        h=moment.hour % 12 or 12,
        m=moment.minute,
        period=style.periods[period][1] if style.periods else "",
    )
    offset = moment.isoformat(timespec="minutes")[-6:] if moment.utcoffset() else ""
    return f"{text} {style.utc}{offset}"


_FORMATS = {
    "ar": _Format(
        "{d} {month} {y}، {h}:{m:02} {period}",
        "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
        periods=((0, "ص"), (720, "م")),
        utc="غرينتش\u200e",  # the mark keeps the sign on the left of the offset
    ),
    "de": _Format(
        "{d}. {month} {y}, {H:02}:{m:02}",
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    ),
    "en": _Format(
        "{month} {d}, {y}, {h}:{m:02}\u202f{period}",
        "January February March April May June July August September October November December",
        periods=((0, "AM"), (720, "PM")),
    ),
    "es": _Format(
        "{d} de {month} de {y}, {H}:{m:02}",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    ),
    "fr": _Format(
        "{d} {month} {y}, {H:02}:{m:02}",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        utc="UTC",
    ),
    "hi": _Format(
        "{d} {month} {y}, {h}:{m:02} {period}",
        "जनवरी फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर अक्टूबर नवंबर दिसंबर",
        periods=((0, "am"), (720, "pm")),
    ),
    "it": _Format(
        "{d} {month} {y} {H:02}:{m:02}",
        "gennaio febbraio marzo aprile maggio giugno "
        "luglio agosto settembre ottobre novembre dicembre",
    ),
    "ja": _Format("{y}年{M}月{d}日 {H}:{m:02}"),
    "ko": _Format(
        "{y}년 {M}월 {d}일 {period} {h}:{m:02}",
        periods=((0, "오전"), (720, "오후")),
    ),
    "nl": _Format(
        "{d} {month} {y}, {H:02}:{m:02}",
        "januari februari maart april mei juni juli augustus september oktober november december",
    ),
    "pl": _Format(
        "{d} {month} {y} {H:02}:{m:02}",
        "stycznia lutego marca kwietnia maja czerwca "
        "lipca sierpnia września października listopada grudnia",
    ),
    "pt": _Format(
        "{d} de {month} de {y} {H:02}:{m:02}",
        "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    ),
    "ru": _Format(
        "{d} {month} {y}\u202fг., {H:02}:{m:02}",  # noqa: RUF001 - Cyrillic
        "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    ),
    "tr": _Format(
        "{d} {month} {y} {H:02}:{m:02}",
        "Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",  # noqa: RUF001
    ),
    "zh-CN": _Format("{y}年{M}月{d}日 {H:02}:{m:02}"),
    "zh-TW": _Format(
        "{y}年{M}月{d}日 {period}{h}:{m:02}",
        periods=(
            (0, "午夜"),
            (1, "凌晨"),
            (300, "清晨"),
            (480, "上午"),
            (720, "中午"),
            (780, "下午"),
            (1140, "晚上"),
        ),
    ),
}
