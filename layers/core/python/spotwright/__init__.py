"""Spotwright: gives an EKS cluster the nodes its pods need."""
