"""The measurement of the Python client, in a very short run."""

from loadtest import client


def test_each_case_is_measured():
    """The report has a row for each client, with the ratio to bare aiohttp."""
    amount = client.Amount(rounds=1, seconds=0.05)
    (report,) = client.measure_reports(amount)
    assert len(report.figures.runs) == 4 * len(client.TASKS)
    assert all(run.per_second > 0 for runs in report.figures.runs.values() for run in runs)
    assert {report.figures.get_ratio(client.BARE, tasks) for tasks in client.TASKS} == {1}
    assert "| AsyncClient without aiohttp |" in "\n".join(report.paragraphs)
