"""Write the generated pages, as `make docs` does before it builds the site."""

import shutil

from scripts.docs_pages import ROOT, write_kept, write_site

write_kept()
shutil.rmtree(ROOT / ".docs", ignore_errors=True)
write_site(ROOT / ".docs")
