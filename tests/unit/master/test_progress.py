import pytest

from adjoin.master.progress import Progress


def test_nothing_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.update("sorting", 1, 10)
    progress.close()
    assert capsys.readouterr() == ("", "")


def test_a_single_line_is_shown_and_removed_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(True)
    progress.update("sorting", 500, 1000)
    progress.update("sorting", 501, 1000)
    progress.close()
    progress.close()
    shown = capsys.readouterr().err
    assert shown == "\r\x1b[Ksorting [############............] 50 % 500 of 1,000 rows\r\x1b[K"


def test_progress_with_an_unknown_total(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(True)
    progress.update("sorting", 5, None)
    assert capsys.readouterr().err.endswith("sorting 5 rows")
