#!/usr/bin/env python3
"""Reads the project's Markdown pages.

  pages.py commands PAGE...    each command of their ```sh blocks, one a line, without comments
  pages.py output PAGE...      the lines of their ```text blocks
  pages.py check ROOT PAGE...  says which links lead nowhere, which code is in no ```sh, ```text,
                               ```python or indented block, and which lines of prose are too long
"""
import pathlib
import re
import sys

FENCE = re.compile(r"^```(\w*)$")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(page):
    """(line number, language, text); the language is None outside fenced blocks."""
    language = None
    for number, line in enumerate(pathlib.Path(page).read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if fence:
            language = fence[1] if language is None else None
        else:
            yield number, language, line


def commands(page):
    begun = ""
    for _, language, line in blocks(page):
        line = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if language != "sh" or not line:
            continue
        if line.endswith("\\"):
            begun += line[:-1].rstrip() + " "
        else:
            yield begun + line.strip()
            begun = ""


def anchors(page):
    """The names that a page's headings can be linked by, as GitHub makes them."""
    for _, language, line in blocks(page):
        if language is None and line.startswith("#"):
            words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            yield words.replace(" ", "-")


def wrong_link(page, target):
    path, _, anchor = target.partition("#")
    if re.match(r"[a-z]+:", target):
        return None
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"{target} leads nowhere"
    if anchor and anchor not in anchors(file):
        return f"{target}: {file.name} has no such heading"
    return None


def check(root, page):
    page = pathlib.Path(page).resolve()
    wrong = []
    for number, language, line in blocks(page):
        if language not in (None, "sh", "text", "python"):
            wrong.append((number, f'a block of "{language}": sh, text or python is expected'))
        if len(line) > 100 and not line.startswith("|"):
            wrong.append((number, f"{len(line)} columns"))
        if language is None:
            wrong += [
                (number, text)
                for text in map(lambda t: wrong_link(page, t), LINK.findall(line))
                if text
            ]
    for number, text in wrong:
        print(f"{page.relative_to(pathlib.Path(root).resolve())}:{number}: {text}")
    return wrong


def main(what, *pages):
    if what == "check":
        sys.exit(1 if [wrong for page in pages[1:] for wrong in check(pages[0], page)] else 0)
    for page in pages:
        if what == "commands":
            print(*commands(page), sep="\n")
        if what == "output":
            print(*(line for _, language, line in blocks(page) if language == "text"), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
