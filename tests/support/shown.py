"""What MLflow's database shows, for comparing one with another. MLflow is imported when it is asked for."""

import json


def dump(results) -> dict:
    """Suite -> (its tags, its active runs): all that the database says, but for its own ids."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{results}/mlflow.db")
    return {
        experiment.name: (
            experiment.tags,
            sorted(map(json.dumps, (_run(client, run) for run in _runs(client, experiment)))),
        )
        for experiment in client.search_experiments()
    }


def _runs(client, experiment) -> list:
    return client.search_runs([experiment.experiment_id], max_results=1000)


def _run(client, run) -> list:
    history = {
        name: sorted((m.step, m.value, m.timestamp) for m in client.get_metric_history(run.info.run_id, name))
        for name in sorted(run.data.metrics)
    }
    tags = dict(sorted(run.data.tags.items()))
    about = [run.info.run_name, run.info.status, run.info.start_time, run.info.end_time]
    return [about, sorted(run.data.params.items()), tags, history]
