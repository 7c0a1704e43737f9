"""Write the pages anew: make docs does it before it builds the site."""

from scripts.docs_pages import DOCS, PAGES

for name, page in PAGES.items():
    (DOCS / name).write_text(page(), encoding="utf-8")
