"""Carry one job from admission to publication."""
