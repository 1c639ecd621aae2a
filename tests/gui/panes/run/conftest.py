"""The Run page on a bridge without a backend."""

import pytest
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QLabel

from gui.panes.run import RunPane
from tests.gui.panes.conftest import ShowPage
from tests.gui.panes.readings import FakeBridge
from tests.gui.panes.run.run_page import MakePage


@pytest.fixture
def bridge() -> FakeBridge:
    return FakeBridge()


@pytest.fixture
def make_page(bridge: FakeBridge, store: QSettings, show_page: ShowPage) -> MakePage:
    def make(width: int = 1330, height: int = 776) -> RunPane:
        page = RunPane(bridge.as_bridge, store, QLabel("chat"))
        show_page(page, width, height)
        return page

    return make


@pytest.fixture
def page(make_page: MakePage) -> RunPane:
    return make_page()
