"""Jobs that run once per tick, however many processes serve them: `Schedule`.

`timetable` says when a job is due, `jobs` what a job is and what both faces share, `run` what a job is told about its run,
`threads` and `tasks` are the faces. `_core.schedule.loop` decides what is claimed, and when.
"""

from holdfast.schedule.command import Command, JobFailed
from holdfast.schedule.run import Cancelled, Run, current
from holdfast.schedule.schedule import Job, JobStatus, Record, Runner
from holdfast.schedule.sync import Schedule
from holdfast.schedule.timetable import Cron, Every, Timetable

__all__ = [
    "Cancelled",
    "Command",
    "Cron",
    "Every",
    "Job",
    "JobFailed",
    "JobStatus",
    "Record",
    "Run",
    "Runner",
    "Schedule",
    "Timetable",
    "current",
]
