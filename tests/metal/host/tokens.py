"""MSL as a list of tokens that can be changed in place without moving a line."""

import re

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\f]+|\\\n) | (?P<newline>\n) | (?P<line>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:\\.|[^"\\\n])*") | (?P<char>'(?:\\.|[^'\\\n])*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|[\w.'])*) | (?P<name>[A-Za-z_]\w*)
  | (?P<op><<=|>>=|->\*|\.\.\.|::|->|\+\+|--|&&|\|\||[-+*/%^&|=!<>]=|<<|.)
    """,
    re.VERBOSE | re.DOTALL,
)  # '>>' stays two tokens: brackets of templates close one by one
_MARKER = re.compile(r'[ \t]*#\s*(?:line\s+)?(\d+)\s+"([^"]*)"')
_CLOSES = {")": "(", "]": "[", "}": "{", ">": "<"}


class Tokens:
    """`words[k]` is the k-th significant token as it was; `put` changes the text that comes out."""

    def __init__(self, text):
        self._pieces, self._at, self.words, self.kinds, self._places = [], [], [], [], []
        line, file = 1, "<text>"
        for match in _TOKEN.finditer(text):
            kind, piece = match.lastgroup, match.group()
            if kind in ("space", "newline", "line", "comment"):
                self._pieces.append(piece)
                line += piece.count("\n")
                marker = _MARKER.match(piece) if kind == "line" else None
                if marker:
                    line, file = int(marker[1]) - 1, marker[2]
                continue
            self._at.append(len(self._pieces))
            self._pieces.append(piece)
            self.words.append(piece)
            self.kinds.append(kind)
            self._places.append((file, line))

    def __len__(self):
        return len(self.words)

    def word(self, k):
        return self.words[k] if 0 <= k < len(self.words) else ""

    def kind(self, k):
        return self.kinds[k] if 0 <= k < len(self.kinds) else ""

    def place(self, k):
        return self._places[k]

    def put(self, k, text):
        self._pieces[self._at[k]] = text

    def get(self, k):
        return self._pieces[self._at[k]]

    def replace(self, first, last, text):
        """`text` for the tokens first..last; the line breaks between them stay."""
        inside = self._pieces[self._at[first] : self._at[last] + 1]
        breaks = "".join(p if p.lstrip().startswith("#") else "\n" * p.count("\n") for p in inside)
        for i in range(self._at[first], self._at[last] + 1):
            self._pieces[i] = ""
        self.put(first, text + breaks)

    def close(self, k):
        """The bracket that closes the one at k, or -1."""
        opening, depth = self.words[k], 0
        closing = {"(": ")", "[": "]", "{": "}", "<": ">"}[opening]
        for j in range(k, len(self.words)):
            word = self.words[j]
            if word == opening:
                depth += 1
            elif word == closing:
                depth -= 1
                if depth == 0:
                    return j
            elif opening == "<" and word in ";{}":
                return -1
        return -1

    def open(self, k):
        """The bracket that opens the one closed at k, or -1."""
        closing, depth = self.words[k], 0
        for j in range(k, -1, -1):
            depth += (self.words[j] == closing) - (self.words[j] == _CLOSES[closing])
            if depth == 0:
                return j
        return -1

    def until(self, k, stop):
        """The next token equal to `stop` outside of brackets, from k on.

        Len(self) when there is none.
        """
        depth = 0
        for j in range(k, len(self.words)):
            word = self.words[j]
            if depth <= 0 and word == stop:
                return j
            depth += (word in "([{") - (word in ")]}")
        return len(self.words)

    def text(self):
        return "".join(self._pieces)
