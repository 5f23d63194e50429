"""Shows verdicts to people: pictures, charts and pages of HTML that need nothing from another place."""
