"""The documentation site: its sources and its build."""
