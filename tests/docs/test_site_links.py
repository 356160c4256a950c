"""Links on the site's pages have the same targets as in the project."""

import pytest
from website.links import on_the_site


@pytest.fixture
def project(tmp_path):
    for name in ("docs/tour/train.md", "docs/doctor.md", "notebooks/a.ipynb", "CHANGELOG.md"):
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "project" / "Makefile").write_text("all:\n")
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("origin", "page", "link", "there"),
    [
        ("docs/tour/train.md", "tour/train.md", "../doctor.md", "../doctor.md"),
        ("docs/tour/train.md", "tour/train.md", "../../notebooks/a.ipynb", "../notebooks/a.ipynb"),
        ("docs/doctor.md", "doctor.md", "../CHANGELOG.md#top", "changelog.md#top"),
        ("docs/doctor.md", "doctor.md", "../Makefile", "files/Makefile"),
        ("CHANGELOG.md", "changelog.md", "docs/doctor.md", "doctor.md"),
        ("CHANGELOG.md", "changelog.md", "docs/gone.md", "docs/gone.md"),
        ("CHANGELOG.md", "changelog.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("CHANGELOG.md", "changelog.md", "#top", "#top"),
    ],
)
def test_links_point_to_pages_of_the_site(project, origin, page, link, there):
    site = project.parent / "site"
    text = f"See [that]({link}) and `[x]({link})`.\n\n```\n[x]({link})\n```\n[one]({link})"
    moved = on_the_site(text, project / origin, site / page, project, site)
    assert moved == (
        f"See [that]({there}) and `[x]({link})`.\n\n```\n[x]({link})\n```\n[one]({there})"
    )


def test_other_files_can_be_downloaded(project):
    site = project.parent / "site"
    on_the_site("[m](../Makefile)", project / "docs" / "doctor.md", site / "a.md", project, site)
    assert (site / "files" / "Makefile").read_text() == "all:\n"
