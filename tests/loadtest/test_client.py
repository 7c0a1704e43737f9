"""The measurement of the Python client, in a very short run."""

from loadtest import client


def test_each_case_is_measured():
    """The report has a row for each client, with the ratio to bare aiohttp."""
    amount = client.Amount(rounds=1, seconds=0.05)
    (report,) = client.measure_reports(amount)
    runs = report.figures
    assert len(runs.runs) == 4 * len(client.TASKS)
    assert all(run.per_second > 0 for case in runs.runs for run in runs.of(case))
    assert "| AsyncClient without aiohttp |" in report.text()
    bare = [(client.BARE, tasks) for tasks in client.TASKS]
    assert {runs.ratio(case, case, "per_second") for case in bare} == {1}
