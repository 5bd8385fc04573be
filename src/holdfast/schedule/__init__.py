"""Schedules: jobs that run once per tick (scheduled time), however many processes serve them.

`timetable` computes when a job is due, and `definition` stores a job's options on the server. `schedule` has jobs and what both
APIs share, and `run` what a job is told about its run. `sync` and `aio` are the two APIs. `_core.schedule.loop` decides what is
claimed.
"""

from holdfast.schedule.command import Command, JobFailed
from holdfast.schedule.run import Cancelled, Run, RunLease, current
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
    "RunLease",
    "Runner",
    "Schedule",
    "Timetable",
    "current",
]
