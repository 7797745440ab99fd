"""The pages in a real browser: Chromium without a window, driven by Selenium."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

from kbevolve.archive.records import StopReason
from kbevolve.archive.store import Archive
from kbevolve.evolve.web.app import create_app
from kbevolve.evolve.web.report import write_report
from kbevolve.evolve.web.snapshot import Snapshot
from tests.evolve.web.conftest import SCRIPT, make_hostile
from tests.small_archive import Sample, fill

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
DRIVER = shutil.which("chromedriver") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium here: apt-get install chromium chromium-driver"),
]
webdriver = pytest.importorskip("selenium.webdriver")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves an archive and returns its address."""
    with ExitStack() as opened:

        def serve_one(path: Path) -> str:
            app = create_app(Snapshot(opened.enter_context(Archive(path, read_only=True))))
            server = make_server("127.0.0.1", 0, app, threaded=True)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            opened.callback(thread.join)
            opened.callback(server.shutdown)
            return f"http://127.0.0.1:{server.port}"

        yield serve_one


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An archive of one run of 2,000 kernels; the file and the run."""
    path = tmp_path_factory.mktemp("large") / "kbevolve.db"
    with Archive(path) as archive:
        run, *_ = fill(archive, generations=460, islands=4, confirmed=True)
    return path, run.id


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a run on this machine's CPU."""
    path = tmp_path_factory.mktemp("real") / "kbevolve.db"
    words = ["run", "--problem", "L1/gelu", "--preset", "smoke", "--generations", "1", "--device", "cpu"]
    command = [sys.executable, "-m", "kbevolve", *words, "--archive", path]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return path


def find(browser: Any, selector: str) -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", selector)
    return found


def check(browser: Any) -> None:
    """The console is empty, nothing is wider than the page, and whatever can be used has a name."""
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    for element in find(browser, "a, button, input, select, svg[role], [role=group], table th")[:400]:
        assert element.accessible_name or not element.is_displayed(), element.get_attribute("outerHTML")
    assert len(find(browser, "h1")) == 1
    assert browser.title
    assert browser.find_element("tag name", "html").get_attribute("lang") == "en"


def test_a_real_run_can_be_read_from_end_to_end(browser: Any, serve: Callable[[Path], str], real: Path) -> None:
    address = serve(real)
    browser.get(address)
    check(browser)
    find(browser, "tbody a")[0].click()
    check(browser)
    assert "the speed of eager" in find(browser, "h1")[0].text
    for words in ("Story", "Lineage", "Kernels", "Ideas"):
        browser.find_element("link text", words).click()
        check(browser)
    browser.find_element("link text", "Kernels").click()
    find(browser, "tr.best a.id")[0].click()
    check(browser)
    assert "best of its run" in find(browser, ".eyebrow")[0].text
    assert find(browser, ".blocks"), "every timed call"
    assert "class ModelNew" in find(browser, ".source")[0].text


def test_two_thousand_kernels_open_filter_follow_diff_and_search(
    browser: Any, serve: Callable[[Path], str], large: tuple[Path, str]
) -> None:
    path, run = large
    address = serve(path)
    browser.get(f"{address}/runs/{run}/lineage")
    check(browser)
    nodes = len(find(browser, ".n"))
    assert nodes > 2000
    # Filter: failures can be hidden, and colours chosen, without loading the page again.
    browser.find_element("css selector", "input[value=failures]").click()
    assert not any(node.is_displayed() for node in find(browser, ".n.failed")[:5])
    browser.find_element("css selector", "input[value=island]").click()
    colours = {node.value_of_css_property("fill") for node in find(browser, ".n:not(.failed)")[:80]}
    assert len(colours) == 4
    assert "colour=island" in browser.current_url
    assert "hide=failures" in browser.current_url
    browser.refresh()
    assert "by-island hide-failures" in find(browser, "#lineage")[0].get_attribute("class")
    # Zoom, by button and key; it stays smooth: twenty steps with all nodes drawn.
    width = find(browser, ".canvas svg")[0].rect["width"]
    browser.find_element("css selector", "[data-zoom=in]").click()
    assert find(browser, ".canvas svg")[0].rect["width"] == pytest.approx(1.3 * width)
    browser.find_element("css selector", ".canvas").send_keys("-")
    assert find(browser, ".canvas svg")[0].rect["width"] == pytest.approx(width)
    zoom = "const done = arguments[0], from = performance.now(); let left = 20; const step = () => {"
    zoom += "document.querySelector(`[data-zoom=${left % 2 ? 'in' : 'out'}]`).click();"
    zoom += "if (left--) requestAnimationFrame(step); else done((performance.now() - from) / 20); }; step();"
    assert browser.execute_async_script(zoom) < 100, "milliseconds a frame; 22 were measured on two busy cores"
    # Follow the line: from a kernel to its parent, and to what changed.
    browser.execute_script("document.querySelector('.n.main').parentNode.dispatchEvent(new MouseEvent('click'))")
    browser.get(f"{address}/runs/{run}/kernels")
    browser.find_element("css selector", "tr.best a.id").click()
    best = find(browser, ".eyebrow code")[0].text
    find(browser, ".rows a.id")[0].click()
    assert find(browser, ".eyebrow code")[0].text != best
    browser.back()
    browser.find_element("link text", "Diff with its parent").click()
    check(browser)
    assert find(browser, "tr.change")
    # Search, from the keyboard.
    body = browser.find_element("tag name", "body")
    body.send_keys("/")
    browser.switch_to.active_element.send_keys("registers\n")
    check(browser)
    assert "Keep a block of C in registers" in find(browser, ".hits")[0].text
    browser.find_element("tag name", "body").send_keys("j")
    assert browser.switch_to.active_element.get_attribute("href").startswith(f"{address}/kernels/")


def test_a_report_opens_from_a_file(browser: Any, large: tuple[Path, str], tmp_path: Path) -> None:
    with Archive(large[0], read_only=True) as archive:
        write_report(archive, "latest", tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri())
    check(browser)
    assert len(find(browser, "figure.drawn > svg")) >= 3
    assert find(browser, "ol.story h2")


def test_an_open_page_follows_the_run(
    browser: Any, serve: Callable[[Path], str], make_archive: Callable[..., Sample]
) -> None:
    sample = make_archive(stop=None)
    browser.get(f"{serve(sample.path)}/runs/{sample.run.id}")
    time.sleep(4)  # the first question is asked after three seconds
    with Archive(sample.path) as writer:
        writer.add_stop(sample.run.id, StopReason.TARGET_REACHED)
    WebDriverWait(browser, 30).until(lambda _: "the target speedup was reached" in find(browser, "main")[0].text)
    check(browser)


def test_dark_and_narrow(browser: Any, serve: Callable[[Path], str], large: tuple[Path, str]) -> None:
    path, run = large
    address = serve(path)

    def paper() -> str:
        return str(browser.find_element("tag name", "body").value_of_css_property("background-color"))

    browser.get(f"{address}/runs/{run}")
    light = paper()
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    assert paper() != light
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for tab in ("", "/story", "/lineage", "/kernels", "/ideas"):
        browser.get(f"{address}/runs/{run}{tab}")
        check(browser)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_pages_work_without_scripts(browser: Any, serve: Callable[[Path], str], large: tuple[Path, str]) -> None:
    path, run = large
    address = serve(path)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(f"{address}/runs/{run}/lineage")
        browser.find_element("css selector", "input[value=operator]").click()
        browser.find_element("css selector", "#lineage-controls noscript button").click()
        WebDriverWait(browser, 30).until(lambda _: "colour=operator" in browser.current_url)
        assert "by-operator" in find(browser, "#lineage")[0].get_attribute("class")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_nothing_of_a_hostile_archive_runs(browser: Any, serve: Callable[[Path], str], small_archive: Sample) -> None:
    address = serve(make_hostile(small_archive))
    with Archive(small_archive.path, read_only=True) as archive:
        kernels = [one.kernel for one in archive.outline(small_archive.run) if one.generation >= 50]
    run = f"/runs/{small_archive.run.id}"
    pages = ["/", run, f"{run}/story", f"{run}/lineage", f"{run}/kernels", f"{run}/ideas", "/search?q=script"]
    pages += [f"/kernels/{name}" for name in kernels if name != SCRIPT] + [f"/diff/{kernels[0]}/{kernels[1]}"]
    for page in pages:
        browser.get(address + page)
        assert browser.title != "owned", page
        assert browser.title.endswith("kbevolve"), page
        assert [entry for entry in browser.get_log("browser") if "Content Security" in entry["message"]] == []
    # The policy itself: what would run if escaping failed.
    browser.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", "<img src=x onerror='x = 1'>")
    browser.execute_script("document.body.append(Object.assign(document.createElement('script'), {text: 'y = 2'}))")
    assert browser.execute_script("return typeof x + typeof y") == "undefinedundefined"
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
