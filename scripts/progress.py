"""Shows how far a build is: some_build 2>&1 | progress.py LABEL LOG

Every line of the build goes to LOG. On a terminal one line is rewritten; elsewhere one line is
printed per five seconds. When the build fails, the part of LOG that begins with the first error is
printed. The shell keeps the exit status of the build (`set -o pipefail`).
"""

import re
import shutil
import sys
import threading
import time

INTERVAL = 5.0  # seconds between two lines where the output is no terminal
STEP = re.compile(
    r"\[(\d+)/(\d+)\] (?:Building \w+ object |Linking \w+ \w+ library |Linking \w+ \w+ )?(.*)"
)
ERROR = re.compile(r"FAILED:|CMake Error|\berror:|^ERROR|no such option")


class Display:
    """The state of the build as one line of text."""

    def __init__(self, label: str) -> None:
        self.label, self.begin, self.step = label, time.monotonic(), "preparing"
        self.terminal = sys.stdout.isatty()
        self.lock = threading.Lock()

    def line(self) -> str:
        spent = int(time.monotonic() - self.begin)
        return f"{self.label}  {spent // 60}:{spent % 60:02}  {self.step}"

    def show(self) -> None:
        with self.lock:
            if self.terminal:
                width = shutil.get_terminal_size().columns - 1
                sys.stdout.write("\r\x1b[K" + self.line()[:width])
            else:
                sys.stdout.write(self.line() + "\n")
            sys.stdout.flush()

    def tick(self, done: threading.Event) -> None:
        while not done.wait(0.5 if self.terminal else INTERVAL):
            self.show()


def main(label: str, log_name: str) -> None:
    display, done, lines, first_error = Display(label), threading.Event(), [], None
    display.show()
    ticker = threading.Thread(target=display.tick, args=(done,), daemon=True)
    ticker.start()
    with open(log_name, "w", encoding="utf-8") as log:
        for text in sys.stdin:
            log.write(text)
            log.flush()
            lines.append(text)
            text = text.strip()
            if step := STEP.match(text):
                name = step[3].rsplit("/", 1)[-1].removesuffix(".o")
                display.step = f"[{step[1]}/{step[2]}] {name}"
            if first_error is None and ERROR.search(text):
                first_error = len(lines) - 1
    done.set()
    ticker.join()
    display.step = "done" if first_error is None else f"failed; all of it is in {log_name}"
    display.show()
    if display.terminal:
        print()
    if first_error is not None:
        sys.stdout.writelines(lines[first_error : first_error + 60])


if __name__ == "__main__":
    main(*sys.argv[1:])
