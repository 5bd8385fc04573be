"""Schedules of jobs that several processes serve: for each scheduled time, the server lets one of the processes run the job."""
