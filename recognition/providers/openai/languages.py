"""Whisper's English names of languages, as servers answer with them, and their BCP-47 tags."""

from __future__ import annotations

_NAMES = """
af afrikaans, am amharic, ar arabic, as assamese, az azerbaijani, ba bashkir, be belarusian, bg bulgarian, bn bengali, bo tibetan, br breton,
bs bosnian, ca catalan, ca valencian, cs czech, cy welsh, da danish, de german, el greek, en english, es castilian, es spanish, et estonian,
eu basque, fa persian, fi finnish, fo faroese, fr french, gl galician, gu gujarati, ha hausa, haw hawaiian, he hebrew, hi hindi, hr croatian,
ht haitian, ht haitian creole, hu hungarian, hy armenian, id indonesian, is icelandic, it italian, ja japanese, jv javanese, ka georgian,
kk kazakh, km khmer, kn kannada, ko korean, la latin, lb letzeburgesch, lb luxembourgish, ln lingala, lo lao, lt lithuanian, lv latvian,
mg malagasy, mi maori, mk macedonian, ml malayalam, mn mongolian, mr marathi, ms malay, mt maltese, my burmese, my myanmar, ne nepali,
nl dutch, nl flemish, nn nynorsk, no norwegian, oc occitan, pa panjabi, pa punjabi, pl polish, ps pashto, ps pushto, pt portuguese,
ro moldavian, ro moldovan, ro romanian, ru russian, sa sanskrit, sd sindhi, si sinhala, si sinhalese, sk slovak, sl slovenian, sn shona,
so somali, sq albanian, sr serbian, su sundanese, sv swedish, sw swahili, ta tamil, te telugu, tg tajik, th thai, tk turkmen, tl tagalog,
tr turkish, tt tatar, uk ukrainian, ur urdu, uz uzbek, vi vietnamese, yi yiddish, yo yoruba, yue cantonese, zh chinese, zh mandarin
"""

CODES: dict[str, str] = {
    **{name: code for code, _, name in (entry.strip().partition(" ") for entry in _NAMES.replace("\n", " ").split(","))},
    "jw": "jv",  # Whisper's own code
}
