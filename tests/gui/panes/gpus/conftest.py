"""The GPUs page on a bridge without a backend."""

import pytest
from PySide6.QtCore import QSettings

from gui.panes.gpus import GpusPane
from tests.gui.panes.conftest import ShowPage
from tests.gui.panes.gpus.gpus_page import MakePage
from tests.gui.panes.readings import FakeBridge


@pytest.fixture
def bridge() -> FakeBridge:
    return FakeBridge()


@pytest.fixture
def make_page(bridge: FakeBridge, store: QSettings, show_page: ShowPage) -> MakePage:
    def make(width: int = 1330, height: int = 1400) -> GpusPane:
        page = GpusPane(bridge.as_bridge, store)
        show_page(page, width, height)
        return page

    return make


@pytest.fixture
def page(make_page: MakePage) -> GpusPane:
    return make_page()
