"""Draws the page of ``millrace bench``. The command brings these files with it, and runs them by any Python of 3.9 or
later without packages (src/cli/bench_page.cc)."""
