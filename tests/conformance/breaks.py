"""Rules of the contract, and how a script has to read to break each: words of its text, and what stands there then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha1

import pytest

from echomq.conformance import every
from echomq.protocol.scripts import registered


@dataclass(frozen=True)
class Break:
    """A rule, the scripts that keep it (all when none is named), words of theirs, and what stands there instead."""

    rule: str
    scripts: tuple[str, ...]
    words: str
    instead: str
    fails: set[str]


BREAKS = [
    Break(
        "complete asks for the token",
        ("complete",),
        r"elseif known\[1\] ~= tokens\[i\] then",
        "elseif false then",
        {"stale", "metrics"},
    ),
    Break("retry asks for the token", ("retry",), r"if row\[1\] ~= token then", "if false then", {"stale"}),
    Break(
        "a kept result makes a duplicate",
        ("enqueue",),
        r", row_of\(id\) \.\. ':result'\) > 0",
        ") > 0",
        {"receipt_after_completion"},
    ),
    Break(
        "a delay gives the lane its slot back",
        ("delay",),
        r"if group then hand_freed\(group\) end",
        "",
        {"delay", "slot_freed", "left_to_script", "cancel_minded"},
    ),
    Break(
        "a cancelled job is not retried",
        ("retry",),
        r"if again and row\[4\] then",
        "if false then",
        {"cancel_minded"},
    ),
    Break(
        "a cancelled job is not put off or handed back",
        ("delay", "release"),
        r"local wish = row\[3\]",
        "local wish = nil",
        {"cancel_minded", "left_to_script"},
    ),
    Break(
        "a cancelled job is not recovered",
        ("sweep",),
        r"local dies = wish or",
        "local dies =",
        {"cancel_minded"},
    ),
    Break(
        "promote leads a grouped job to its lane",
        ("promote",),
        r"if row and row\[1\] then",
        "if false then",
        {"schedule_lane", "back_to_lane", "left_to_script"},
    ),
    Break(
        "promote drops a ghost",
        ("promote",),
        r"if redis\.call\('EXISTS', row\) == 0 then return nil end\n",
        "",
        {"promote_ghost"},
    ),
    Break(
        "fire waits for the server's clock",
        ("fire",),
        r"if score > now then return \{ 'early', score \} end",
        "",
        {"fire_server_clock"},
    ),
    Break(
        "fire compares the score that was read",
        ("fire",),
        r"if score ~= tonumber\(ARGV\[2\]\) then return \{ 'lost', score \} end",
        "",
        {"fire_once", "fire_lost", "fire_beside_original"},
    ),
    Break(
        "a turn waits for the server's clock",
        ("cron_fire",),
        r"then return nothing\('early'\) end",
        "then local _ = 0 end",
        {"cron_server_clock"},
    ),
    Break(
        "a turn acts on what was read",
        ("cron_fire",),
        r"or stamp_of\('cron', name\) ~= ARGV\[2\]",
        "",
        {"cron_fire_once", "cron_as_read"},
    ),
    Break(
        "overlap looks where the last occurrence is",
        ("cron_fire",),
        r"if record\[1\] == 'skip' and busy\(last\) then",
        "if false then",
        {"cron_overlap"},
    ),
    Break(
        "a put takes the name out of the other registry",
        ("cron_put",),
        r"redis\.call\('ZREM', base \.\. other, name\)",
        "",
        {"cron_kinds"},
    ),
    Break(
        "a claim of nothing deletes wake",
        ("claim",),
        r"redis\.call\('DEL', base \.\. 'wake'\)",
        "",
        {"wake_ceiling", "wake_swept"},
    ),
    Break(
        "a release wakes somebody",
        ("release",),
        r"redis\.call\('LPUSH', base \.\. 'wake'",
        "redis.call('EXISTS', base .. 'wake'",
        {"release", "slot_freed", "wake_pushed"},
    ),
    Break(
        "a child counts once",
        (),
        r"local function counted\(row, child\)",
        "local function counted(row, child)\n  if true then return false end",
        {"flow_fanin", "flow_readd", "flow_readd_taken", "flow_first_appearance", "outbox_by_value"},
    ),
    Break(
        "another's job is no node of a flow",
        ("flow_add", "flow_strangers"),
        r"local function stranger\(id, parent, queue, children\)",
        "local function stranger(id, parent, queue, children)\n  if true then return nil end",
        {"flow_stranger", "flow_cross_stranger", "flow_late_stranger", "flow_other_children"},
    ),
    Break(
        "a parent's children are those that it was added with",
        ("flow_add", "flow_strangers"),
        r"if left and left \+ counted ~= children then",
        "if false then",
        {"flow_other_children"},
    ),
    Break(
        "a held parent counts the children that there are",
        ("audit_kin",),
        r"out\[#out \+ 1\] = row\[1\]",
        "out[#out] = nil",
        {"audit_held", "flow_late_stranger"},
    ),
    Break(
        "a paused queue serves no claim",
        ("claim",),
        r"if meta\[1\] then return 0, 'paused' end",
        "",
        {"queue_pause", "claim_why"},
    ),
    Break("the ring turns", (), r"'LEFT', 'RIGHT'\)", "'LEFT', 'LEFT')", {"turn", "rotate", "weight"}),
    Break(
        "a completion frees its deduplication key",
        ("complete",),
        r"free_key\(id, known\[5\]\)",
        "",
        {"dedup_freed"},
    ),
    Break("a full server takes completions", ("complete",), r"#!lua flags=allow-oom", "#!lua", {"server_full"}),
    Break(
        "a lease runs from now",
        ("claim",),
        r"hands\[n \+ 1\], hands\[n \+ 2\] = deadline, id",
        "hands[n + 1], hands[n + 2] = deadline + 60000, id",
        {"claim"},
    ),
]


def damage(monkeypatch: pytest.MonkeyPatch, broken: Break) -> None:
    every()
    hurt = 0
    for script in registered():
        if broken.scripts and script.name not in broken.scripts:
            continue
        text, count = re.subn(broken.words, lambda _: broken.instead, script.source)
        if count:
            hurt += 1
            monkeypatch.setattr(script, "sha", sha1(text.encode(), usedforsecurity=False).hexdigest())
            monkeypatch.setattr(script, "source", text)
    assert hurt >= max(1, len(broken.scripts)), "the script was reworded: break its new words"
