"""Checks whether records are true: compares them with what their weights, or a second training, give here."""
