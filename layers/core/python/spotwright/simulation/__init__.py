"""Stateful stand-ins for the outside world: cluster, EC2, state, queues and clock, in memory and in virtual time.

They keep the promises of ``workflows.ports``; a contract suite runs on them and on the real adapters alike.
"""
