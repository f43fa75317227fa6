"""EventBridge Scheduler and scheduled rules: expressions and the time in, invocations of targets out."""
