"""Schedules: jobs whose runs are claimed on the server, so that one process of many begins each run."""
