"""Schedules of jobs that several processes serve. For each scheduled time, the server lets one of the processes run the job."""
