"""Rules between pods: topology spread, pod affinity and pod anti-affinity.

Pods go in as counts per domain: running pods, and pods that were just placed. The domains that a pod may join come
out. Knows no price and no offering.
"""
