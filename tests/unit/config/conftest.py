import pytest


@pytest.fixture(autouse=True)
def current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path
