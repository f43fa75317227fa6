"""Ctrl-C ends the demo in a sentence, as if it were one of its sections."""

import sys
from pathlib import Path

import pytest

from local.demo import __main__ as demo


def test_ctrl_c_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_run", interrupted)
    monkeypatch.setattr(sys, "argv", ["demo", "--directory", str(tmp_path)])
    assert demo.main() == 130
    assert "stopped by Ctrl-C" in capsys.readouterr().out
