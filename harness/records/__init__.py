"""The record of a finished trial, and the files beside it."""
