#!/usr/bin/env python3
"""Words of comments, by crate, and of pages: sentences have a thing as their subject, and say what it does or is.

Two figures, over the comments in crates/*/src without tests (scripts/rust_source.py):

  persons   who, whom, whoever, nobody, somebody and the like, of 1000 words
  openings  items whose documentation begins with What, Whether, Who, Whom, Whose, As or How, of 100

Libraries of the field have 0.1 and at most 6. A crate may have as many as `LIMITS` says.

Of the pages (*.md) it counts persons, in their prose: blocks of code, words in backticks and targets of links are left out.

  scripts/check-words.py              fails when a crate or a page has more
  scripts/check-words.py --list       the figures of each crate and of all pages
  scripts/check-words.py CRATE...     where they are, as FILE:LINE: text
  scripts/check-words.py PAGE.md...   likewise
"""

import pathlib
import re
import subprocess
import sys

import rust_source

PERSONS = re.compile(r"\b(who|whom|whoever|whomever|nobody|somebody|anybody|everybody)\b(?!`)", re.I)
OPENINGS = re.compile(r"(What|Whether|Who|Whom|Whose|As|How)\b")
# Persons of 1000 words, openings of 100 items.
LIMITS = (1.0, 6.0)
# Persons of 1000 words of all pages together, and of a page that has more than one.
PAGES_LIMIT = 0.5
PAGE_LIMIT = 1.5
# Texts of others.
NOT_OURS = {"demo/data/LICENSES.md"}
ROOT = pathlib.Path(__file__).resolve().parent.parent


def comments(text):
    """The lines of a file that are comments, with their number and text; and whether they begin an item's documentation."""
    was_item = False
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        is_item = bare.startswith("///") and not bare.startswith("////")
        if bare.startswith("//"):
            yield number, bare.lstrip("/!").strip(), is_item and not was_item
        elif " // " in line and '"' not in line.split(" // ", 1)[1]:
            yield number, line.split(" // ", 1)[1], False
        was_item = is_item


def figures(crate, tell=None):
    """Persons of 1000 words, and openings of 100 items."""
    words = persons = items = openings = 0
    for file, source in rust_source.modules(ROOT / "crates" / crate / "src"):
        for number, text, begins in comments(source):
            words += len(re.findall(r"[A-Za-z']+", text))
            found = len(PERSONS.findall(text))
            persons += found
            items += begins
            opens = begins and OPENINGS.match(text) is not None
            openings += opens
            if tell and (found or opens):
                tell(f"{file.relative_to(ROOT)}:{number}: {text}")
    return 1000 * persons / max(words, 1), 100 * openings / max(items, 1)


def prose(text):
    """The lines of a page with their numbers, without what is no prose."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("    "):
            yield number, re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", line))


def page_figures(page, tell=None):
    """Words and persons of a page."""
    words = persons = 0
    for number, line in prose((ROOT / page).read_text()):
        words += len(re.findall(r"[A-Za-z']+", line))
        found = len(PERSONS.findall(line))
        persons += found
        if tell and found:
            tell(f"{page}:{number}: {line.strip()}")
    return words, persons


def check_pages(is_list):
    """Compares the pages with their limits; true if one has more."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    pages = [page for page in listed.stdout.split() if page not in NOT_OURS and (ROOT / page).is_file()]
    found = {page: page_figures(page) for page in pages}
    failed = False
    for page, (words, persons) in found.items():
        if persons > 1 and 1000 * persons / words > PAGE_LIMIT and not is_list:
            failed = True
            print(f"{page}: {persons} persons in {words} words (scripts/check-words.py {page})", file=sys.stderr)
    words, persons = (sum(figures) for figures in zip(*found.values()))
    figure = 1000 * persons / words
    if is_list:
        print(f"pages: {figure:.1f} persons of 1000 words")
    elif round(figure, 1) > PAGES_LIMIT:
        failed = True
        print(f"pages: {figure:.1f} persons of 1000 words, at most {PAGES_LIMIT}", file=sys.stderr)
    return failed


def main():
    wanted = sys.argv[1:]
    crates = sorted(path.parent.name for path in ROOT.glob("crates/*/src"))
    if wanted and wanted != ["--list"]:
        for name in wanted:
            page_figures(name, print) if name.endswith(".md") else figures(name, print)
        return 0
    failed = check_pages(bool(wanted))
    for crate in crates:
        found = figures(crate)
        if wanted:
            print(f"{crate}: {found[0]:.1f} persons of 1000 words, {found[1]:.1f} openings of 100 items")
        for name, figure, limit in zip(("persons of 1000 words", "openings of 100 items"), found, LIMITS):
            if round(figure, 1) > limit and not wanted:
                failed = True
                print(f"{crate}: {figure:.1f} {name}, at most {limit:.1f} (scripts/check-words.py {crate})", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
