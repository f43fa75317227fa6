"""Where a real kube-scheduler puts pods, by how it is told the plan: batches in, figures for each variant out."""
