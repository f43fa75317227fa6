"""Boots the instances of the local AWS: reads their user data as a node would and lets only right ones join."""
