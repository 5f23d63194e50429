"""The page of the studio in a browser: what a reader sees, types and presses."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Page, Route, expect

from millpond.studio.answers import answer_question
from millpond.studio.examples import list_examples
from millpond.studio.workers import WorkerPool
from tests.support.browser import OpenInBrowser, OpenPage
from tests.support.studio import run_studio

STREAMS = """\
CREATE STREAMING TABLE clicks (ad INT, price INT, at TIMESTAMP);
CREATE STREAMING TABLE offers (ad INT, ceiling INT, at TIMESTAMP);
"""
BOUNDED = f"{STREAMS}SELECT ad, price FROM clicks WHERE price > 5;"
UNBOUNDED = f"{STREAMS}SELECT c.price FROM clicks c JOIN offers o ON c.ad = o.ad;"
UNDETERMINED = f"""{STREAMS}
SELECT DISTINCT 1 FROM clicks x, clicks y, clicks z WHERE x.price < y.price AND y.price < z.price;"""
OpenStudio = Callable[..., Page]
expect.set_options(timeout=20_000)


def make_fragment(text: str) -> str:
    """The permalink of a text."""
    squeezed = zlib.compress(text.encode(), wbits=-zlib.MAX_WBITS)
    return f"#sql={base64.urlsafe_b64encode(squeezed).decode().rstrip('=')}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_studio(WorkerPool()) as found:
        yield f"{found}/"


@pytest.fixture
def open_studio(address: str, open_page: OpenInBrowser) -> Iterator[OpenStudio]:
    """Open the studio; whatever a test does, it reports no error and asks no other machine."""
    opened: list[OpenPage] = []

    def open_it(link: str = make_fragment(BOUNDED), width: int = 1200, scheme: str = "light") -> Page:
        opened.append(open_page(urljoin(address, link), width=width, scheme=scheme))
        expect(opened[-1].page.locator(".verdict")).to_be_visible()
        return opened[-1].page

    yield open_it
    for each in opened:
        assert not each.errors
        assert all(request.startswith(address) for request in each.requests)


def write(page: Page, text: str) -> None:
    """Replace the text of the editor as by typing, without the help that the editor gives with brackets."""
    page.locator(".cm-content").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def read(page: Page) -> str:
    """The text of the editor, by its permalink."""
    script = "async () => (await import('/static/permalink.js')).readLink(location.hash)"
    return str(page.evaluate(script))


def expect_outcome(page: Page, outcome: str) -> None:
    expect(page.locator(".verdict h3")).to_have_text(re.compile(f"^.{outcome}", re.IGNORECASE))


# --- the verdict -----------------------------------------------------------------------------------------


def test_the_verdict_follows_what_is_typed(open_studio: OpenStudio) -> None:
    page = open_studio()
    expect(page.locator(".verdict")).to_have_text(re.compile("Bounded.*nothing has to be kept"))
    expect(page.get_by_role("status").first).to_have_text("The query is bounded")
    expect(page.get_by_role("img", name="Columns and predicates of clicks")).to_be_visible()
    page.keyboard.press("Control+End")
    page.keyboard.press("Home")
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.type(" DISTINCT")
    page.keyboard.press("Escape")
    expect_outcome(page, "unbounded")
    expect(page.locator("[data-name=why]")).to_contain_text("can take infinitely many values")
    expect(page.locator("[data-name=proof]")).to_contain_text("may have arrived")
    expect(page.locator(".cm-lintRange-error").first).to_have_text("ad")
    write(page, UNDETERMINED)
    expect_outcome(page, "undetermined")
    write(page, "")
    expect(page.locator("#results")).to_contain_text("Declare streams")


def test_an_error_is_shown_in_one_line_and_marked_in_the_text(open_studio: OpenStudio) -> None:
    page = open_studio()
    write(page, f"{STREAMS}SELECT pric FROM clicks;")
    error = page.locator(".verdict.error")
    expect(error).to_contain_text("line 3, column 8")
    expect(error).to_contain_text("there is no column pric")
    expect(page.locator(".cm-lintRange-error")).to_have_text("pric")
    page.get_by_role("button", name="Go there").click()
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.insert_text("e")
    expect_outcome(page, "bounded")
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)


def test_offsets_are_right_behind_characters_outside_the_basic_plane(open_studio: OpenStudio) -> None:
    page = open_studio()
    write(page, f"-- 🎉🎉🎉\n{STREAMS}SELECT '🎉', x FROM clicks;")
    expect(page.locator(".cm-lintRange-error")).to_have_text("x")


def test_the_query_at_the_cursor_is_shown(open_studio: OpenStudio) -> None:
    page = open_studio()
    write(page, f"{BOUNDED}\n{UNBOUNDED.removeprefix(STREAMS)}")
    expect(page.get_by_role("button", name="Query 2, unbounded")).to_have_attribute("aria-current", "true")
    expect_outcome(page, "unbounded")
    page.keyboard.press("ArrowUp")
    expect_outcome(page, "bounded")
    page.get_by_role("button", name="Query 2").click()
    expect_outcome(page, "unbounded")


def test_an_answer_that_comes_too_late_is_not_shown(open_studio: OpenStudio) -> None:
    """The answer to the first text arrives after that to the second."""
    page = open_studio()
    held: list[Route] = []
    page.route("**/api/check", lambda route: held.append(route) if not held else route.continue_())
    write(page, UNBOUNDED)
    page.wait_for_timeout(300)
    write(page, BOUNDED)
    expect(page.locator(".verdict")).to_contain_text("nothing has to be kept")
    held[0].continue_()
    page.wait_for_timeout(500)
    expect(page.locator(".verdict")).to_contain_text("nothing has to be kept")
    page.unroute_all(behavior="wait")


def test_a_text_that_takes_too_long_is_reported(open_studio: OpenStudio) -> None:
    page = open_studio()
    message = "it takes longer than 5 s to decide this text; use millpond check"
    page.route("**/api/check", lambda route: route.fulfill(json={"error": {"message": message}}))
    write(page, UNBOUNDED)
    expect(page.locator(".verdict.error")).to_contain_text(message)


# --- repairs ---------------------------------------------------------------------------------------------


def test_a_repair_is_applied_and_undone(open_studio: OpenStudio) -> None:
    page = open_studio()
    write(page, UNBOUNDED)
    expect(page.locator(".cm-lintRange-error").first).to_have_text("c.price")
    repair = page.get_by_role("listitem").filter(has=page.get_by_role("button", name="Apply")).first
    expect(repair).to_be_visible()
    inserted = repair.locator("ins").first.inner_text()
    repair.get_by_role("button", name="Apply").click()
    expect_outcome(page, "bounded")
    expect(page.locator(".cm-content .inserted").first).to_contain_text(inserted.strip())
    expect(page.locator("[data-name=repairs]")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect_outcome(page, "unbounded")
    assert read(page) == UNBOUNDED


def test_a_repair_is_applied_with_the_keyboard(open_studio: OpenStudio) -> None:
    """Also where characters that JavaScript counts twice come before it."""
    page = open_studio()
    write(page, f"-- 🎉🎉\n{UNBOUNDED}")
    apply = page.get_by_role("button", name="Apply").first
    expect(page.locator(".cm-lintRange-error").first).to_have_text("c.price")
    expect(apply).to_be_visible()
    page.locator(".cm-content").focus()
    page.keyboard.press("Control+Enter")
    expect(apply).to_be_focused()
    page.keyboard.press("Enter")
    expect_outcome(page, "bounded")
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.press("Control+z")
    expect_outcome(page, "unbounded")
    assert read(page) == f"-- 🎉🎉\n{UNBOUNDED}"


# --- examples and links ------------------------------------------------------------------------------------


def test_examples_can_be_loaded(open_studio: OpenStudio) -> None:
    page = open_studio("")
    expect(page.locator(".cm-content")).to_contain_text(list_examples()[0].title)
    for example in reversed(list_examples()):
        page.get_by_role("button", name="Examples").click()
        page.get_by_role("button", name=example.title).click()
        verdicts = answer_question({"task": "check", "text": example.text})["verdicts"]
        outcomes = [verdict["outcome"] for verdict in verdicts]
        for number, outcome in enumerate(outcomes, start=1):
            page.get_by_role("button", name=f"Query {number}, {outcome}", exact=True).click()
            expect_outcome(page, outcome)
        expect(page.locator("#queries button")).to_have_count(len(outcomes))


def test_a_link_holds_the_text(open_studio: OpenStudio, address: str) -> None:
    page = open_studio()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    text = f"-- Grüße, 你好 🎉 <b>&amp;</b> '\"`\n{BOUNDED}"
    write(page, text)
    expect_outcome(page, "bounded")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#toast")).to_contain_text("copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{address}#sql=") and link == page.url
    other = open_studio(link)
    assert read(other) == text
    expect(other.locator(".cm-content")).to_contain_text("Grüße, 你好 🎉 <b>&amp;</b>")
    # A link that is opened while the page is open replaces the text; a broken one says so.
    other.evaluate("location.hash = '#sql=AAAA'")
    expect(other.locator("#toast")).to_contain_text("cannot be read")
    module = "await import('/static/permalink.js')"
    other.evaluate(f"async (text) => location.hash = await ({module}).writeLink(text)", UNBOUNDED)
    expect_outcome(other, "unbounded")
    assert read(other) == UNBOUNDED


def test_a_link_that_inflates_without_end_is_refused(open_studio: OpenStudio) -> None:
    page = open_studio()
    script = """async () => {
      const { readLink, writeLink } = await import('/static/permalink.js');
      return String(await readLink(await writeLink('x'.repeat(10_000_000))));
    }"""
    assert "cannot be read" in page.evaluate(script)


# --- without a mouse ---------------------------------------------------------------------------------------


def test_everything_can_be_done_with_the_keyboard(open_studio: OpenStudio) -> None:
    page = open_studio(make_fragment(f"{BOUNDED} SELECT ceiling FROM offers;"))
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.press("Tab")  # leaves the editor
    expect(page.get_by_role("button", name="Query 1, bounded")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    second = page.get_by_role("button", name="Query 2, bounded")
    expect(second).to_have_attribute("aria-current", "true")
    expect(second).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".cm-content")).to_contain_text("Orders and payments")
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.press("Control+z")
    expect(page.locator(".cm-content")).to_contain_text("SELECT ceiling FROM offers")
    page.keyboard.press("F1")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()
    write(page, UNBOUNDED)
    expect(page.locator(".cm-lintRange-error").first).to_have_text("c.price")
    page.keyboard.press("F8")
    expect(page.locator("#toast")).to_contain_text("infinitely many values")
    page.keyboard.press("Control+/")
    expect(page.locator(".cm-content")).to_contain_text("-- SELECT c.price")


def test_names_are_completed(open_studio: OpenStudio) -> None:
    """Columns of the stream that an alias stands for, also before FROM is written; words of SQL."""
    page = open_studio()
    chosen = page.locator(".cm-tooltip-autocomplete li[aria-selected]")
    for typed, found in (("SELECT o.c", "ceiling"), ("SELECT cli", "clicks"), ("SEL", "SELECT")):
        write(page, f"{STREAMS}SELECT o.ad FROM offers o; ")
        page.keyboard.type(typed)
        expect(chosen).to_have_text(found)
        page.wait_for_timeout(100)  # a completion that has just opened is not taken
        page.keyboard.press("Tab")
        expect(page.locator(".cm-content")).to_contain_text(re.compile(rf"o; (SELECT )?(o\.)?{found}$"))
        expect(page.locator(".cm-content")).to_be_focused()


# --- how it looks ------------------------------------------------------------------------------------------


def test_the_theme_follows_the_system_until_it_is_chosen(open_studio: OpenStudio) -> None:
    def find_background(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark, light = open_studio(scheme="dark"), open_studio()
    assert find_background(dark) != find_background(light)
    for theme, like in (("light", light), ("dark", dark)):
        light.get_by_role("button", name="Theme").click()
        expect(light.get_by_role("button", name=f"Theme: {theme}")).to_be_visible()
        if theme == "dark":
            assert find_background(light) == find_background(like)
    light.reload()
    assert find_background(light) == find_background(dark)
    expect(light.get_by_role("button", name="Theme: dark")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_the_page_is_accessible(open_studio: OpenStudio, width: int, scheme: str) -> None:
    page = open_studio(make_fragment(f"{UNBOUNDED} SELECT ceiling FROM offers;"), width, scheme)
    for name in ("why", "picture", "proof", "growth"):
        expect(page.locator(f"[data-name={name}]")).to_be_visible()
    expect(page.get_by_role("button", name="Apply").first).to_be_visible()
    opened = OpenPage(page)
    assert opened.find_violations() == []
    assert not opened.scrolls_sideways()
    page.get_by_role("button", name="Examples").click()
    assert opened.find_violations() == []
    page.keyboard.press("Escape")
    write(page, "SELECT x")
    expect(page.locator(".verdict.error")).to_be_visible()
    assert opened.find_violations() == []
    page.get_by_role("button", name="Keyboard shortcuts").click()
    assert opened.find_violations() == []
    assert not opened.scrolls_sideways()


# --- hostile texts -----------------------------------------------------------------------------------------

EVIL = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
HOSTILE = (
    f"CREATE STREAMING TABLE `{EVIL}` (`{EVIL}` INT); SELECT DISTINCT `{EVIL}` FROM `{EVIL}`;",
    f"CREATE STREAMING TABLE t (a STRING); SELECT a FROM t WHERE a = '{EVIL.replace(chr(39), chr(34))}'",
    f"SELECT `{EVIL}` FROM `{EVIL}`",
    f"{EVIL} 'x",
    f"-- {EVIL}\n/* </script></style></svg> \u202e \u0000 */ SELECT 1",
    f"{STREAMS}SELECT ad AS `{EVIL}`, COUNT(*) FROM clicks GROUP BY ad;",
)


def test_hostile_texts_do_nothing(open_studio: OpenStudio) -> None:
    page = open_studio()
    created = page.locator("img[onerror], script").count()
    for text in HOSTILE:
        with page.expect_response("**/api/check"):
            write(page, text)
        expect(page.locator("#results")).not_to_have_class("stale")
        assert page.locator("img[onerror], script").count() == created
    page.wait_for_timeout(300)
    assert page.title() == "Millpond studio"
