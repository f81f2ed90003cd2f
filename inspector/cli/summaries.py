"""What the list of commands says of each in a line, and what people type most."""

from __future__ import annotations

GROUPS = {
    "Look into files": {
        "inspect": "What every byte is, and what is wrong with it.",
        "browse": "The same on a screen, to look around in.",
        "tokens": "Its token ids, their text, or a request that goes on from them.",
        "diff": "What is different about two files.",
        "report": "A page about files, to keep or to send.",
    },
    "Before a restore": {
        "check": "Will this server restore it? reuse how much? is it of this model?",
        "scan": "The same of all files in a folder, a line each.",
        "whose": "Which of some models a state is of.",
        "geometry": "What a slot file for a model holds, and how long it is.",
    },
    "Make another file": {
        "repair": "A copy that a server restores, and makes the most of.",
        "anonymize": "A copy to show to others, without what it says.",
        "seal": "Digests beside a file, by which later changes are found.",
    },
    "Test loaders": {
        "fuzz": "Valid files, named mutants, and what a loader does with them.",
        "generate": "Small valid files of every layout.",
        "mutate": "Mutants of a file, each with what loaders must make of it.",
        "run": "Give files to a loader: what crashes, hangs, is taken wrongly?",
        "minimize": "The smallest file on which a loader still fails.",
        "dictionary": "The words of the formats, for AFL++ and libFuzzer.",
    },
    "Look up": {
        "explain": "What a finding means, and what follows from it.",
        "layouts": "Every known layout, field by field.",
        "man": "This help as a manual page.",
    },
}
"""Heading -> command -> what it is for."""

_EXAMPLES = {
    "inspect": (
        "inspect slot.bin",
        "inspect slot.bin --deep --model model.gguf",
        "inspect slot.bin --path attn.streams[0] --hex",
    ),
    "browse": ("browse slot.bin",),
    "tokens": (
        "tokens slot.bin",
        "tokens slot.bin --model model.gguf",
        'tokens slot.bin --request --text " and then"',
    ),
    "diff": ("diff before.bin after.bin", "diff a.bin b.bin --deep --tolerance 0.01"),
    "report": (
        "report slot.bin -o page.html",
        'report slot.bin -o page.html --for "llama-server -m model.gguf"',
    ),
    "check": (
        'check slot.bin --for "llama-server -m model.gguf -c 8192 -np 4"',
        "check slot.bin --url http://127.0.0.1:8080",
        "check slot.bin --build b11549 --next 292/304",
    ),
    "scan": (
        "scan saves",
        "scan saves --build b11549 --filter restore=refuses",
        "scan saves --sort -size --csv saves.csv",
    ),
    "whose": ("whose slot.bin models",),
    "geometry": ('geometry model.gguf --for "llama-server -c 8192" --tokens 4000',),
    "repair": (
        'repair slot.bin --for "llama-server -m model.gguf"',
        'repair slot.bin --for "llama-server -m model.gguf" -o new.bin',
        "repair slot.bin --at 2000 -o new.bin",
    ),
    "anonymize": ("anonymize slot.bin -o shown.bin",),
    "seal": ("seal slot.bin", "scan saves --verify"),
    "generate": ("fuzz generate --out corpus",),
    "mutate": ("fuzz mutate slot.bin --out mutants --count 500",),
    "run": (
        "fuzz run corpus -- ./loader {}",
        'fuzz run corpus --server "llama-server -m model.gguf"',
    ),
    "minimize": ("fuzz minimize crash.bin -o small.bin -- ./loader {}",),
    "dictionary": ("fuzz dictionary > slotscope.dict",),
    "explain": ("explain file.truncated", "explain trim"),
    "layouts": ("layouts ggsq4.hybrid", "layouts ggsq4.hybrid --export ksy"),
    "man": ("man | man -l -",),
}

EXIT_CODES = """\
\b
Exit codes:
  0    sound, or done
  1    findings from --fail-on on, or a restore that is refused or kills
       the server
  2    wrong usage, or a file that cannot be read
  70   a bug of ours
  130  ended by Ctrl-C; scan --watch, once it watches, ends with the code
       for what it showed
"""


def summary(name: str) -> str | None:
    """What a command is for."""
    return next((group[name] for group in GROUPS.values() if name in group), None)


def examples(name: str) -> str | None:
    """What people type most of a command."""
    lines = [f"  slotscope {line}" for line in _EXAMPLES.get(name, ())]
    return "\n".join(["\b", "For example:", *lines]) if lines else None
