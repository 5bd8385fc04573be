"""Schedules, whose jobs run once per tick (scheduled time), however many processes serve them.

`timetable` computes the ticks of a job, and `definition` stores a job's options on the server. `schedule` has the classes for
users, and `run` the object that a job function receives. `service` serves a schedule from its start to its stop, and `engine`
begins and ends the runs. `_core.schedule.loop` decides which ticks a process runs.
"""

from holdfast.schedule.command import Command, JobFailed
from holdfast.schedule.run import Cancelled, Run, RunLease, current
from holdfast.schedule.schedule import Job, JobStatus, Record, Runner, Schedule
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
