#!/usr/bin/env python3
"""Take a picture of a report's page in headless Chromium, its first cause opened.

    shoot.py PAGE PICTURE light|dark
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

path, out, scheme = sys.argv[1:]
exe = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
with sync_playwright() as p:
    browser = p.chromium.launch(executable_path=exe, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1180, "height": 1240 if scheme == "light" else 1010}, color_scheme=scheme, reduced_motion="reduce")
    page.goto(Path(path).absolute().as_uri())
    page.wait_for_selector("html[data-ready]")
    page.locator(".jump").first.click()
    page.locator("#all").click()
    page.evaluate("scrollTo(0, 0)" if scheme == "light" else "document.getElementById('timeline').scrollIntoView()")
    page.mouse.move(5, 5)
    page.wait_for_timeout(500)
    page.screenshot(path=out)
    browser.close()
