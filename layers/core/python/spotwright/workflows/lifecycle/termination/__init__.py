"""A deleted NodeClaim in, nothing left of it out: drain, volumes, TerminateInstances, finalizer; and orphans."""
