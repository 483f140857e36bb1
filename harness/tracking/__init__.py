"""MLflow: a view of the records that can be rebuilt from them."""
