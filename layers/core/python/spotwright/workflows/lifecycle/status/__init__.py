"""Conditions and status of NodeClaims (Drifted), NodePools and NodeOverlays, brought up to date. Nothing else is
written."""
