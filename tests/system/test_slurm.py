"""`harness run --executor slurm` on a SLURM of one node: jobs that are killed, requeued, watched again, or refused."""

import shutil
import signal
import subprocess
import sys

import one_node_slurm
import pytest
from disturbed import Place, suite_text, wait_for

AT = 20  # the fifth step of the second epoch, of 15 steps each
HELD = f"faulty: {{kind: held, at: {AT}}}"  # waits in that step until the test lets it go on
RUN = ("--executor", "slurm", "--no-tracking")
TUNE = "tune: {space: {train.lr: {log_uniform: [0.001, 0.1]}}, trials: 2, epochs: 1, seed: 3}"


@pytest.fixture(scope="module", autouse=True)
def slurm():
    with one_node_slurm.running():
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The results of the suite of held trials, to which nothing happens."""
    undisturbed = Place(tmp_path_factory.mktemp("undisturbed") / "place", suite_text(HELD, seeds="[1, 2]"))
    undisturbed.let_go()
    return undisturbed.here()


def held(there: Place) -> list[str]:
    """The ids of both jobs, once their trials wait in that step."""
    mark = there.marks / f"held-{AT}-1000000"
    wait_for(lambda: mark.exists() and len(mark.read_text()) == 2)
    return [f"{array}_{index}" for array, index in sorted(one_node_slurm.jobs("ArrayJobID", "ArrayTaskID"))]


def test_a_killed_and_a_requeued_job_go_on_and_end_with_the_bits_of_inline(place, expected):
    there = place(HELD, seeds="[1, 2]")
    command = there.start("run", *RUN, "--partition", "main")
    killed, requeued = held(there)
    subprocess.run(["scancel", "--batch", "--signal=KILL", killed], check=True)
    subprocess.run(["scontrol", "requeue", requeued], check=True)
    wait_for(lambda: ["PENDING", "BeginTime"] in one_node_slurm.jobs("State", "Reason"))
    subprocess.run(["scontrol", "update", f"JobId={requeued}", "StartTime=now"], check=True)  # not in two minutes
    there.let_go()
    done = there.end(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"job {killed} ended as FAILED without a record; it is submitted again" in done.stderr
    assert there.results() == expected
    assert [record["environment"]["sessions"] for record in there.records().values()] == [2, 2]
    assert {record["environment"]["executor"] for record in there.records().values()} == {"slurm"}
    again = there.run(*RUN)
    assert again.returncode == 0
    assert "nothing to run: all 2 trials have a record" in again.stdout
    assert "submitted" not in again.stderr
    assert there.leftovers() == []


def test_after_ctrl_c_the_jobs_go_on_and_the_same_command_watches_them(place, expected):
    there = place(HELD, seeds="[1, 2]")
    first = there.start("run", *RUN)
    jobs = held(there)
    array = jobs[0].partition("_")[0]
    first.send_signal(signal.SIGINT)
    stopped = there.end(first)
    assert stopped.returncode == 130
    assert f"the jobs go on: the same command watches them again, and `scancel {array}` ends them" in stopped.stderr
    second = there.start("run", *RUN)
    wait_for(lambda: "submitted before" in second.stderr.readline())
    assert held(there) == jobs  # and no others
    there.let_go()
    done = there.end(second)
    assert (done.returncode, there.results()) == (0, expected), done.stdout + done.stderr
    assert there.leftovers() == []


def test_both_stages_of_a_tuned_suite_are_arrays(place):
    there = place("softmax", more=TUNE)
    done = there.run(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(": ")[1].split(";")[0] for line in done.stderr.splitlines() if "submitted job" in line] == [
        *("2 trials", "1 trial")
    ]
    assert sorted(record["tuning"] for record in there.records().values()) == [False, True, True]


def test_what_slurm_refuses_ends_with_its_sentence_and_leaves_no_job(place):
    there = place("softmax")
    for options, sentence in (
        (["--partition", "nope"], "Invalid partition name specified"),
        (["--slurm", "--mem=900000G"], "Requested node configuration is not available"),
        (["--slurm", "--nonsense=1"], "unrecognized option '--nonsense=1'"),
        (["--slurm", "other.sh"], "Unable to open file other.sh"),
        (["--slurm", "'--time=1; touch obeyed'"], "Invalid --time specification"),
        (["--gpus-per-trial", "1"], "Invalid generic resource (gres) specification"),
    ):
        done = there.run(*RUN, *options)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("sbatch: ")
        assert sentence in line
        assert line.endswith(
            "no job was submitted; change --account, --partition, --slurm, or what a trial needs (resources)"
        )
    assert one_node_slurm.jobs("JobID") == []
    assert [*there.runs.glob(".slurm/*"), *there.folder.rglob("obeyed")] == []


def test_a_results_folder_that_jobs_cannot_see_is_refused(place):
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare of util-linux, for a folder that only the command sees")
    there = place("softmax")
    (there.folder / "results").mkdir()
    hidden = (
        f'mount -t tmpfs none results && exec "{sys.executable}" -m harness.cli run suites/tiny.yaml {" ".join(RUN)}'
    )
    options = {"cwd": there.folder, "env": there.environment(), "capture_output": True, "text": True}
    done = subprocess.run(["unshare", "--mount", "sh", "-c", hidden], **options)
    if "mount" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.returncode == 2
    assert "the results folder must be one that all nodes share" in done.stderr.splitlines()[-1]
    assert one_node_slurm.jobs("JobID") == []
