"""Deliberate defects in taking a lock away from its holder, see `mutations`."""

from __future__ import annotations

from sim.script_defects import Mutation


def _defect(name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, file, old, new, breaks, of="break")


def _lua(name: str, old: str, new: str, breaks: str) -> Mutation:
    return _defect(name, "_lua/break.lua", old, new, breaks)


BREAKING = (
    _lua(
        "break-without-fence",
        "fence = math.max((fields[1] or 0) + 1, now)\n",
        "fence = (fields[1] or now) - BLOCK + 1\n",
        "who lost the lock is not kept out by the fence that is answered",
    ),
    _lua(
        "break-without-comparing",
        "if string.sub(redis.sha1hex(holder), 1, 16) ~= ARGV[1] then return {-1} end\n",
        "",
        "the lock is taken away from whoever has it, not from who was seen to",
    ),
    _lua(
        "break-without-telling",
        "publish(inbox_of(lock, holder), '4 ' .. holder .. ' ' .. ARGV[2])",
        "1",
        "who had the lock is not told, and is said to have been",
    ),
    _defect(
        "break-not-reported",
        "_core/renewing.py",
        """            return not tenure.lose(broken_by(tenure.hint) if tenure.hint else "it was taken away")\n""",
        """            tenure.lose("it was taken away")\n            return True\n""",
        "the owner of the lease is not told what his process knows",
    ),
)
