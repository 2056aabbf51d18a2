"""The browser imports the page's scripts as modules from the server."""

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from playground.ui import assets

UI = Path(assets.__file__).parent
MODULES = sorted(path.relative_to(UI).as_posix() for path in UI.rglob("*.js"))


@pytest.fixture
def server():
    return TestClient(Starlette(routes=[assets.route()]))


def links():
    return re.findall(r'href="([^"]+)"', assets.preloads())


def test_every_module_is_preloaded_and_served_as_javascript(server):
    assert [link.split("/", 2)[2] for link in links()] == MODULES
    for link, module in zip(links(), MODULES, strict=True):
        answer = server.get(f"/{link}")
        assert answer.content == (UI / module).read_bytes()
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "immutable" in answer.headers["cache-control"]


def test_other_files_are_not_served(server):
    version = links()[0].split("/")[1]
    for name in ("assets.py", "shared/theme.py", "../lab.py", "shared/web/page.css", "missing.js"):
        assert server.get(f"/scripts/{version}/{name}").status_code == 404


def test_page_of_another_version_gets_the_script_but_does_not_cache_it(server):
    answer = server.get(f"/scripts/0123456789abcdef/{MODULES[0]}")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"


def test_addresses_are_relative_to_the_page():
    assert not any(link.startswith(("/", "http")) for link in links())


def test_mount_names_its_events_in_quotes_for_gradio():
    script = assets.mount("compare/web/live_view.js", "started", "over")
    assert '"started"' in script and '"over"' in script


def test_unknown_module_is_refused():
    with pytest.raises(ValueError, match="no script"):
        assets.mount("compare/web/missing.js")


def test_imports_between_modules_lead_to_files():
    for module in MODULES:
        source = (UI / module).read_text(encoding="utf-8")
        for target in re.findall(r'^import .*? from "(.+?)";', source, re.M | re.S):
            assert (UI / module).parent.joinpath(target).resolve().is_file(), (module, target)


def test_only_one_stylesheet_names_classes_of_gradio():
    names = "gradio-container|tabitem|tab-wrapper|block|form|wrap|html-container|label-wrap"
    pattern = re.compile(rf"\.({names}|info-text)(?![\w-])|\[data-testid|svelte-")
    found = [path.name for path in UI.rglob("*.css") if pattern.search(path.read_text("utf-8"))]
    assert found == ["gradio.css"]
