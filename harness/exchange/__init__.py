"""Records from machine to machine: one file of a results folder's finished trials, and back."""
